package stock

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Keyed identifies a request that must have its effect once: the idempotency key, scoped by client.
type Keyed struct {
	Client string
	Key    string
}

// DeductRequest takes (or, with Hold, promises) all lines of an order or none.
type DeductRequest struct {
	Keyed
	OrderID string
	Part    string
	Lines   []WantedLine
	Hold    time.Duration // 0: take at once
	// AllowPartial takes of each line what there is, if there is anything at all.
	AllowPartial bool
	// Customer is whom it is for, in the client's own words; empty: nobody is named. With a CustomerLimit it is refused
	// if he would have more of an item than that.
	Customer      string
	CustomerLimit Quantity // 0: none
}

// For is the customer it is for; zero if nobody is named.
func (r *DeductRequest) For() Customer {
	if r.Customer == "" {
		return Customer{}
	}
	return Customer{r.Client, r.Customer}
}

// WantedLine is one line of a [DeductRequest].
type WantedLine struct {
	Item     Item
	Quantity Quantity
	LineID   string
	Sourcing *Sourcing // nil: from Item; else Item has no location
}

// Sourcing says which locations a line may be taken from: the first that has it all, or with Split several.
type Sourcing struct {
	Locations []Location // in order of preference; empty: all that have the SKU
	Split     bool
	// Within bounds "all" to what the caller may use; nil: no bound. It is not the client's input.
	Within []Location
	// Found is what "all" came to. The ledger fills it in.
	Found []Location
}

// Places is how many locations it names, or as many as were found.
func (s *Sourcing) Places() int { return max(len(s.Locations), len(s.Found)) }

// AppendItems appends the items that the line may be taken from, in order of preference.
func (l *WantedLine) AppendItems(items []Item) []Item {
	if l.Sourcing == nil {
		return append(items, l.Item)
	}
	locations := l.Sourcing.Locations
	if len(locations) == 0 {
		locations = l.Sourcing.Found
	}
	for _, location := range locations {
		items = append(items, Item{l.Item.SKU, location})
	}
	return items
}

// CommitRequest takes what a deduction holds: everything when Lines is empty, else the named quantities.
// What a partial commit leaves is released, or stays held with KeepRest. A commit with KeepRest is the one
// change of state that a retry would repeat, so it needs a Key; the others are idempotent by state.
type CommitRequest struct {
	Keyed
	ID       DeductionID
	Lines    []LineQuantity
	KeepRest bool
}

// LineQuantity names a quantity of one line of an existing deduction, by number or by the caller's LineID.
type LineQuantity struct {
	No       int // 0: named by LineID
	LineID   string
	Quantity Quantity
}

// ReleaseRequest gives back everything a deduction still holds.
type ReleaseRequest struct {
	Client string
	ID     DeductionID
}

// ExtendRequest moves a hold's expiry to Hold from now. An expired hold is refused, or with Reacquire
// taken anew.
type ExtendRequest struct {
	Client    string
	ID        DeductionID
	Hold      time.Duration
	Reacquire bool
}

// ReturnRequest books goods that came back: never more in sum than was committed.
type ReturnRequest struct {
	Keyed
	ID     DeductionID
	Lines  []LineQuantity // empty: everything not yet returned
	Reason string
}

// OrderRequest commits, releases or returns all deductions of an order, or none. Only a return has a key and a reason.
type OrderRequest struct {
	Keyed
	OrderID string
	Reason  string
}

// AdjustRequest changes what is physically there, by Delta or to SetTo.
type AdjustRequest struct {
	Keyed
	Item           Item
	Kind           MovementKind // Receive, Adjust or Count
	Delta          Quantity
	SetTo          *Quantity // needs IfVersion or ExpectedOnHand, or Overwrite
	ExpectedOnHand *Quantity
	IfVersion      *int64
	Overwrite      bool // SetTo replaces whatever there is
	Reason         string
	Reference      string
}

// Adjustment is the answer to an [AdjustRequest].
type Adjustment struct {
	Movement Movement
	Levels   Levels // after the movement, or as of now for a replay
	Replayed bool
}

// ConfigureRequest creates an item or changes its settings.
type ConfigureRequest struct {
	Client      string
	Item        Item
	SafetyStock Quantity
	LowStockAt  *Quantity
	Label       string
	MustBeNew   bool   // If-None-Match: *
	IfVersion   *int64 // If-Match
}

// Configured is the answer to a [ConfigureRequest].
type Configured struct {
	Stock   Stock
	Created bool
}

// Fingerprint identifies what a client asked for under an idempotency key: the same input gives the same
// fingerprint, whatever the order of members in the JSON it came in, and nothing the server made is in it.
type Fingerprint [16]byte

// Fingerprint of the request's input: the key itself is not part of it.
func (r *DeductRequest) Fingerprint() Fingerprint {
	h := newHasher("deduct")
	h.text(r.OrderID)
	h.text(r.Part)
	h.number(int64(r.Hold))
	for i := range r.Lines {
		l := &r.Lines[i]
		h.text(string(l.Item.SKU))
		h.text(string(l.Item.Location))
		h.number(int64(l.Quantity))
		h.text(l.LineID)
		h.sourcing(l.Sourcing)
	}
	if r.AllowPartial || r.Customer != "" {
		h.text(furtherInput)
		h.flag(r.AllowPartial)
		h.text(r.Customer)
		h.number(int64(r.CustomerLimit))
	}
	return h.sum()
}

// furtherInput precedes what a request may have beyond what every one has: no name contains it. Without such input the
// fingerprint is what it was before there was any, because keys are never forgotten.
const furtherInput = "\x00"

// Fingerprint of the request's input: the key itself is not part of it.
func (r *CommitRequest) Fingerprint() Fingerprint {
	h := newHasher("commit")
	h.bytes(r.ID[:])
	h.flag(r.KeepRest)
	h.lines(r.Lines)
	return h.sum()
}

// Fingerprint of the request's input: the key itself is not part of it.
func (r *ReturnRequest) Fingerprint() Fingerprint {
	h := newHasher("return")
	h.bytes(r.ID[:])
	h.lines(r.Lines)
	h.text(r.Reason)
	return h.sum()
}

// Fingerprint of the request's input: the key itself is not part of it.
func (r *OrderRequest) Fingerprint() Fingerprint {
	h := newHasher("return order")
	h.text(r.OrderID)
	h.text(r.Reason)
	return h.sum()
}

// Fingerprint of the request's input: the key itself is not part of it, nor are If-Match preconditions,
// which say when to act, not what to do.
func (r *AdjustRequest) Fingerprint() Fingerprint {
	h := newHasher("adjust")
	h.text(string(r.Item.SKU))
	h.text(string(r.Item.Location))
	h.text(string(r.Kind))
	h.number(int64(r.Delta))
	h.optional(r.SetTo)
	h.optional(r.ExpectedOnHand)
	h.text(r.Reason)
	h.text(r.Reference)
	return h.sum()
}

// hasher writes fields so that no two different inputs give the same bytes: text is length-prefixed,
// numbers have a fixed width.
type hasher struct{ buf []byte }

func newHasher(kind string) *hasher {
	h := &hasher{buf: make([]byte, 0, 256)}
	h.text(kind)
	return h
}

func (h *hasher) text(s string) {
	h.buf = binary.AppendUvarint(h.buf, uint64(len(s)))
	h.buf = append(h.buf, s...)
}

func (h *hasher) bytes(b []byte) { h.buf = append(h.buf, b...) }
func (h *hasher) number(n int64) { h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(n)) }
func (h *hasher) sum() Fingerprint {
	full := sha256.Sum256(h.buf)
	return Fingerprint(full[:16])
}

func (h *hasher) flag(b bool) {
	if b {
		h.buf = append(h.buf, 1)
		return
	}
	h.buf = append(h.buf, 0)
}

func (h *hasher) optional(q *Quantity) {
	h.flag(q != nil)
	if q != nil {
		h.number(int64(*q))
	}
}

func (h *hasher) sourcing(s *Sourcing) {
	if s == nil {
		return
	}
	h.text(furtherInput)
	h.flag(s.Split)
	h.number(int64(len(s.Locations)))
	for _, location := range s.Locations {
		h.text(string(location))
	}
}

func (h *hasher) lines(lines []LineQuantity) {
	h.number(int64(len(lines)))
	for i := range lines {
		h.number(int64(lines[i].No))
		h.text(lines[i].LineID)
		h.number(int64(lines[i].Quantity))
	}
}
