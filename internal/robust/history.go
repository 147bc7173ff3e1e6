package robust

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// History is what happened, as clients saw it and as the ledger tells it.
type History struct {
	Seed   uint64
	Start  time.Time // the instant zero of all durations
	Ops    []Op
	Ledger Ledger
	// Gate is what the gate says about items after all was quiet; empty: it was not asked.
	Gate []Base
	// Linger is for how long units of a request may stay refused to others after its answer; 0: a second. After an
	// unanswered one they may for [TicketLife].
	Linger time.Duration
	Faults []Fault
}

// Fault is what was broken, when, and what came of it.
type Fault struct {
	Name       string
	From, To   time.Duration
	RateBefore float64 // operations done in a second, before
	// Operations that were called while it lasted: done or refused for a reason of their own, answered that nothing was done for want of
	// a store, and not answered.
	Done, Shed, Not int
	Recovery        time.Duration // from its end until every process had done or refused a write that was called after it
}

// TicketLife is how long the gate keeps units for a request that never came back, at the default request deadline.
const TicketLife = 6 * time.Second

// Kind of an operation.
type Kind string

// The kinds of operations.
const (
	Deduct  Kind = "deduct"
	Hold    Kind = "hold"
	Commit  Kind = "commit"
	Release Kind = "release"
	Extend  Kind = "extend"
	Return  Kind = "return"
	Receive Kind = "receive"
	Set     Kind = "count"
	Read    Kind = "read"
)

// Outcome of an operation, as its client knows it.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused" // nothing was done
	Unknown Outcome = "unknown"
)

// Op is one logical operation.
type Op struct {
	Client    string
	Kind      Kind
	Key       string // its idempotency key; empty where the kind needs none
	Deduction string // that it made or was about
	Lines     []Line
	Process   int // that answered
	Call      time.Duration
	Return    time.Duration // meaningless when the outcome is unknown
	Outcome   Outcome
	Doubtful  bool   // a sending before the last one was not answered, or with "unknown"
	Replayed  bool   // the answer said that it had been done before
	Problem   string // why it was refused
	Levels    []Level
	Short     []Short
	Expires   time.Time // of a hold, as the last answer said
}

// Line is an item and how many units of it an operation is about.
type Line struct {
	SKU      string
	Quantity int64
}

// Level is what an answer said about an item.
type Level struct {
	SKU     string `json:"sku"`
	OnHand  int64  `json:"on_hand"`
	Held    int64  `json:"held"`
	Version int64  `json:"version"`
}

// Short is a line of a refusal.
type Short struct {
	SKU       string `json:"sku"`
	Requested int64  `json:"requested"`
	Available int64  `json:"available"`
	Version   int64  `json:"version"`
}

// Ledger is what it says in the end.
type Ledger struct {
	Items      []Level
	Movements  []Movement // by item and version
	Keys       []KeyRow
	Deductions []Deduction
}

// Movement of an item.
type Movement struct {
	Level     // the item and its figures after it
	OnHandBy  int64
	HeldBy    int64
	Kind      string
	Deduction string
	At        time.Duration // by the ledger's clock, less Ahead
	Ahead     time.Duration // how far the ledger's clock was from ours: it may have been set
}

// KeyRow is an idempotency key that had its effect.
type KeyRow struct {
	Client, Key, Kind string
	Deduction         string // or
	SKU               string // and Version of a movement
	Version           int64
}

// Deduction and its lines.
type Deduction struct {
	ID, Client, State string
	Expires           time.Duration // by the ledger's clock; 0: never
	Lines             []DeductionLine
}

// DeductionLine is a line of a deduction.
type DeductionLine struct {
	SKU                                 string
	Quantity, Held, Committed, Returned int64
}

// Base is what the gate has of an item.
type Base struct {
	SKU                string
	Available, Version int64
}

// Save the history as JSON.
func (h *History) Save(path string) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// Load a history that was saved.
func Load(path string) (*History, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h := new(History)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, fmt.Errorf("history %s: %w", path, err)
	}
	return h, nil
}
