package stock

import (
	"errors"
	"fmt"
	"time"
)

// Outcomes that are expected to happen. Each has a row in the HTTP error table; data travels in a typed
// error that unwraps to its sentinel.
var (
	ErrInsufficientStock    = errors.New("not enough stock")
	ErrUnknownItem          = errors.New("unknown item")
	ErrOrderAlreadyDeducted = errors.New("a live deduction for this order and part exists")
	ErrKeyReused            = errors.New("the idempotency key was used for a different request")
	ErrKeyVoided            = errors.New("the idempotency key was voided")
	ErrHoldExpired          = errors.New("the hold has expired")
	ErrWrongState           = errors.New("the deduction's state does not allow this")
	ErrCustomerLimit        = errors.New("the customer may not have so many")
	ErrReturnExceeds        = errors.New("more would come back than was taken")
	ErrNotFound             = errors.New("not found")
	ErrInvalidField         = errors.New("invalid field")
	ErrPreconditionFailed   = errors.New("the item is not as expected")
	ErrPreconditionRequired = errors.New("setting a figure needs the figure or version it replaces")

	// ErrStale: a newer holder has claimed the key since, or the time of the claim is over. Nothing was written.
	ErrStale = errors.New("the fencing token is stale")
	// ErrStocktakeOpen: the item is being counted already.
	ErrStocktakeOpen = errors.New("the item is being counted")
	// ErrStocktakeOver: the count can write nothing any more.
	ErrStocktakeOver = errors.New("the stocktake is over")

	// ErrOverloaded: refused before anything was done; the same request may be sent again later.
	ErrOverloaded = errors.New("too much work is waiting")
	// ErrLedgerUnavailable: the ledger cannot be reached and nothing was done.
	ErrLedgerUnavailable = errors.New("the ledger is out of reach")
	// ErrUnknownOutcome: the request may or may not have had its effect. Neither success nor failure:
	// only the same request with the same key tells.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
)

// ShortLine is a line that cannot be served.
type ShortLine struct {
	Line      int // index in the request, 0 for the first
	Item      Item
	Requested Quantity // by all lines of the request for this item together
	Available Quantity
	Version   int64
}

// ShortError is [ErrInsufficientStock] with every short line.
type ShortError struct{ Lines []ShortLine }

func (e *ShortError) Error() string {
	return fmt.Sprintf("%v: %d lines are short", ErrInsufficientStock, len(e.Lines))
}
func (e *ShortError) Unwrap() error { return ErrInsufficientStock }

// UnknownLine is a line whose item does not exist.
type UnknownLine struct {
	Line int  // index in the request, 0 for the first
	Item Item // without location: at none of those that the line may be taken from
}

// UnknownItemError is [ErrUnknownItem] with every such line.
type UnknownItemError struct{ Lines []UnknownLine }

func (e *UnknownItemError) Error() string {
	return fmt.Sprintf("%v: %d lines", ErrUnknownItem, len(e.Lines))
}
func (e *UnknownItemError) Unwrap() error { return ErrUnknownItem }

// LimitLine is a line of whose item the customer would have more than the limit.
type LimitLine struct {
	Line      int // index in the request, 0 for the first
	Item      Item
	Requested Quantity // by all lines of the request for this item together
	Has       Quantity
	Limit     Quantity
}

// LimitError is [ErrCustomerLimit] with every such line.
type LimitError struct{ Lines []LimitLine }

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %d lines", ErrCustomerLimit, len(e.Lines))
}
func (e *LimitError) Unwrap() error { return ErrCustomerLimit }

// OrderError is [ErrOrderAlreadyDeducted] with the deduction that is live.
type OrderError struct{ ID DeductionID }

func (e *OrderError) Error() string { return fmt.Sprintf("%v: %s", ErrOrderAlreadyDeducted, e.ID) }
func (e *OrderError) Unwrap() error { return ErrOrderAlreadyDeducted }

// StateError is [ErrWrongState] with the state the deduction is in.
type StateError struct{ Deduction Deduction }

func (e *StateError) Error() string {
	return fmt.Sprintf("%v: it is %s", ErrWrongState, e.Deduction.State)
}
func (e *StateError) Unwrap() error { return ErrWrongState }

// ExpiredError is [ErrHoldExpired] with the deduction whose time is over.
type ExpiredError struct{ Deduction Deduction }

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%v at %s", ErrHoldExpired, e.Deduction.ExpiresAt.Format(time.RFC3339Nano))
}
func (e *ExpiredError) Unwrap() error { return ErrHoldExpired }

// ExcessLine is a line of which more was asked back (or to be committed) than there is.
type ExcessLine struct {
	Line      int // index in the request, 0 for the first
	Requested Quantity
	Possible  Quantity
}

// ReturnError is [ErrReturnExceeds] with every such line.
type ReturnError struct{ Lines []ExcessLine }

func (e *ReturnError) Error() string {
	return fmt.Sprintf("%v: %d lines", ErrReturnExceeds, len(e.Lines))
}
func (e *ReturnError) Unwrap() error { return ErrReturnExceeds }

// StocktakeError is [ErrStocktakeOpen] or [ErrStocktakeOver] with the count in question.
type StocktakeError struct {
	Reason    error
	Stocktake Stocktake
}

func (e *StocktakeError) Error() string { return fmt.Sprintf("%v: %s", e.Reason, e.Stocktake.ID) }
func (e *StocktakeError) Unwrap() error { return e.Reason }

// PreconditionError is [ErrPreconditionFailed] or [ErrPreconditionRequired] with the current figures.
type PreconditionError struct {
	Reason error
	Levels Levels
}

func (e *PreconditionError) Error() string {
	return fmt.Sprintf("%v: on hand %d at version %d", e.Reason, e.Levels.OnHand, e.Levels.Version)
}
func (e *PreconditionError) Unwrap() error { return e.Reason }

// FieldError is [ErrInvalidField] with a JSON pointer for each field that is wrong.
type FieldError struct{ Fields []Field }

// Field is one wrong field.
type Field struct {
	Pointer string // RFC 6901
	Detail  string // a sentence fragment: "must not be empty"
}

func (e *FieldError) Error() string {
	if len(e.Fields) == 0 {
		return ErrInvalidField.Error()
	}
	return fmt.Sprintf("%v: %s %s", ErrInvalidField, e.Fields[0].Pointer, e.Fields[0].Detail)
}
func (e *FieldError) Unwrap() error { return ErrInvalidField }

// InvalidField is a [FieldError] of one field.
func InvalidField(pointer, detail string) error {
	return &FieldError{Fields: []Field{{Pointer: pointer, Detail: detail}}}
}
