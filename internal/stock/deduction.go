package stock

import (
	"time"

	"github.com/google/uuid"
)

// DeductionID names a deduction; it is a UUIDv7, so ids sort by creation time.
type DeductionID = uuid.UUID

// State is where a deduction stands.
//
//	           ┌──────────► released
//	           │ release
//	deduct ─► held ───────► expired
//	           │ commit
//	           ▼
//	deduct ─► committed ──► returned   (when everything came back)
type State string

// The states of a deduction. Held and Committed are live: while a deduction is live, no other one may
// be made for the same client, order and part.
const (
	Held      State = "held"
	Committed State = "committed"
	Released  State = "released"
	Expired   State = "expired"
	Returned  State = "returned"
)

// States lists every [State].
func States() []State { return []State{Held, Committed, Released, Expired, Returned} }

// Live reports whether units are still promised or taken under a deduction in this state.
func (s State) Live() bool { return s == Held || s == Committed }

// Deduction is what an order took, or holds.
type Deduction struct {
	ID        DeductionID
	Number    int64 // for people; 0: it was made before there were numbers
	Client    string
	OrderID   string
	Part      string
	State     State
	Revision  int32 // +1 for every change of this deduction, the optimistic lock of its state
	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time // zero unless it was made as a hold
	Customer  Customer  // zero: nobody was named
	// CustomerLimit is what the customer may have of each item, 0: as much as there is. It is kept for a hold that is
	// taken anew.
	CustomerLimit Quantity
	Lines         []Line
}

// Customer is whom a client sells to, by the client's own name for him.
type Customer struct{ Client, Name string }

// CustomerUnits is what a customer has of an item as of a version of it: held or committed, and not returned.
type CustomerUnits struct {
	Customer
	Item
	Units   Quantity
	Version int64
	Epoch   uint32
}

// Line is one line of a deduction: what is taken from one item. A line of the request that is split over locations
// is several of them, one after the other. Quantity = Held + Committed + Missing + what was released or expired.
type Line struct {
	No          int    // 1 for the first line
	RequestLine int    // number of the request's line that it serves
	LineID      string // the caller's own name for the request's line, may be empty
	Item        Item
	Quantity    Quantity // asked for
	Missing     Quantity // of Quantity, what was not there
	Held        Quantity // still promised
	Committed   Quantity // taken
	Returned    Quantity // of Committed, what came back
}

// Granted is what was there of what was asked for.
func (l Line) Granted() Quantity { return l.Quantity - l.Missing }

// Released is what was promised once and given back, by a release, a partial commit or expiry.
func (l Line) Released() Quantity { return l.Granted() - l.Held - l.Committed }

// Outcome is the answer to a request that changed a deduction, or would have if it had not been done before.
type Outcome struct {
	Deduction Deduction
	// Levels of each item of the deduction: after the change, or as of now for a replay.
	Levels []Levels
	// Replayed: nothing was done now, the same request had been done before.
	Replayed bool
}

// OrderOutcome is the answer to an [OrderRequest].
type OrderOutcome struct {
	Deductions []Outcome // those that count, see [OrderRequest]
	Replayed   bool      // nothing was done now
}

// DeductResult is the answer to one of several requests: an outcome, or why there is none.
type DeductResult struct {
	Outcome *Outcome
	Err     error
}

// MovementKind says why an item's figures changed.
type MovementKind string

// The kinds of movement. Configure is a change of the item's settings: it moves nothing, but takes a
// version, because a safety stock changes what is available and readers and gate order what they see by version.
const (
	Receive   MovementKind = "receive"
	Deducted  MovementKind = "deduct"
	Hold      MovementKind = "hold"
	Commit    MovementKind = "commit"
	Release   MovementKind = "release"
	Expire    MovementKind = "expire"
	Return    MovementKind = "return"
	Adjust    MovementKind = "adjust"
	Count     MovementKind = "count"
	Configure MovementKind = "configure"
	// Checkpoint stands for an item's movements up to its version, which were archived: its deltas are their sums.
	Checkpoint MovementKind = "checkpoint"
)

// MovementKinds lists every [MovementKind].
func MovementKinds() []MovementKind {
	return []MovementKind{Receive, Deducted, Hold, Commit, Release, Expire, Return, Adjust, Count, Configure, Checkpoint}
}

// Movement is one change of one item, append-only. Its Version is its place in the item's history:
// 1, 2, 3 … without gaps, or from a [Checkpoint] on.
type Movement struct {
	Version     int64
	Kind        MovementKind
	DeltaOnHand Quantity
	DeltaHeld   Quantity
	OnHand      Quantity // after the movement
	Held        Quantity // after the movement
	Reason      string
	Reference   string
	Actor       string
	Deduction   *DeductionID
	At          time.Time
}
