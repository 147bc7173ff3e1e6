package stock

import "time"

// OperationKind says what an idempotency key was used for.
type OperationKind string

// The kinds of operation. Void is the tombstone of a key that nothing was, and nothing will be, done under.
const (
	DeductOperation      OperationKind = "deduct"
	CommitOperation      OperationKind = "commit"
	ReturnOperation      OperationKind = "return"
	ReturnOrderOperation OperationKind = "return-order"
	AdjustOperation      OperationKind = "adjust"
	VoidOperation        OperationKind = "void"
)

// Operation is what happened under an idempotency key.
type Operation struct {
	Key        string
	Kind       OperationKind
	At         time.Time
	Outcome    *Outcome    // the deduction that was made or changed, as it is now; else nil
	Outcomes   []Outcome   // the deductions of an order that came back as a whole; else nil
	Adjustment *Adjustment // of an adjustment; else nil
	Replayed   bool        // nothing was done now
}
