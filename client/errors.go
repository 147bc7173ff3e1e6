package client

import (
	"fmt"
	"strings"
	"time"
)

// kind is the last part of a problem's type, to be compared with by [errors.Is].
type kind string

func (k kind) Error() string { return strings.ReplaceAll(string(k), "-", " ") }

// What Holdfast may answer, for [errors.Is]. The contract has the full list; [Error.Kind] names the others.
const (
	ErrInsufficientStock    = kind("insufficient-stock")
	ErrUnknownItem          = kind("unknown-item")
	ErrOrderAlreadyDeducted = kind("order-already-deducted")
	ErrKeyReused            = kind("idempotency-key-reused")
	ErrKeyVoided            = kind("idempotency-key-voided")
	ErrHoldExpired          = kind("hold-expired")
	ErrWrongState           = kind("wrong-state")
	ErrReturnExceeds        = kind("return-exceeds-deducted")
	ErrNotFound             = kind("not-found")
	ErrInvalidField         = kind("invalid-field")
	ErrPreconditionFailed   = kind("precondition-failed")
	ErrUnauthenticated      = kind("unauthenticated")
	ErrForbidden            = kind("forbidden")
	ErrRateLimited          = kind("rate-limited")
	ErrOverloaded           = kind("overloaded")
	ErrLedgerUnavailable    = kind("ledger-unavailable")

	// ErrUnknownOutcome: no final answer came, and an attempt may have had its effect.
	ErrUnknownOutcome = kind("outcome-unknown")
)

// Error is a problem that Holdfast answered with: nothing was done.
type Error struct {
	Problem
	RetryAfter time.Duration // how long to wait before it is worth asking again; 0: nothing was said
}

// Kind is the problem's name, such as insufficient-stock.
func (e *Error) Kind() string { return e.Type[strings.LastIndexByte(e.Type, ':')+1:] }

// Error says what the service said, and under which request id its log has it.
func (e *Error) Error() string {
	return fmt.Sprintf("holdfast: %s: %s (%d, request %s)", e.Title, e.Detail, e.Status, e.Instance)
}

// Is compares with the errors of this package.
func (e *Error) Is(target error) bool { k, ok := target.(kind); return ok && string(k) == e.Kind() }

// ShortLines are the lines that are short, with what there is, when it is [ErrInsufficientStock].
func (e *Error) ShortLines() []ShortLine {
	if e.Short == nil {
		return nil
	}
	return *e.Short
}

// UnknownError is [ErrUnknownOutcome]: call again with the same key and input, now or after a restart, or give the key up.
type UnknownError struct {
	Key   string // empty: the call needs none, and may be made again as it is
	Cause error  // why there was no more time: the context's error, or nil when patience was over
	Last  error  // what the last attempt came to
}

// Error tells the key, which is all that is needed to find out.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("holdfast: the outcome of the request with key %q is unknown: %v", e.Key, e.Last)
}

// Is compares with the errors of this package.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknownOutcome }

// Unwrap is what ended the attempts.
func (e *UnknownError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Last}
	}
	return []error{e.Cause, e.Last}
}
