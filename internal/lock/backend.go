package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What a lock can answer. Data travels in a typed error that unwraps to its sentinel.
var (
	// ErrHeld: somebody else holds the key. A [HeldError] says for how long at most.
	ErrHeld = errors.New("the lock is held by another")
	// ErrLost: the grant is not held any more, or not known to be, though nobody released it.
	ErrLost = errors.New("the lease was lost")
	// ErrReleased is the cause of a bound context that ended because its lease was released.
	ErrReleased = errors.New("the lease was released")
	// ErrUnknownOutcome: the request may or may not have had its effect. After an acquire the claim is given up
	// in the background; after a release the key is free no later than the lease ends.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
	// ErrInvalid: a key, a TTL or an option is not one that the lock can honour. Nothing was done.
	ErrInvalid = errors.New("invalid lock request")
	// ErrClosed: the locker was closed.
	ErrClosed = errors.New("the locker is closed")
)

// HeldError is [ErrHeld] with what the back end knows of the holder.
type HeldError struct {
	Remaining time.Duration // until the key is free if nobody renews it; 0 if the back end does not tell
}

func (e *HeldError) Error() string {
	if e.Remaining <= 0 {
		return ErrHeld.Error()
	}
	return fmt.Sprintf("%v for up to %s", ErrHeld, e.Remaining)
}
func (e *HeldError) Unwrap() error { return ErrHeld }

// Claim is one wish to hold a key. Its owner's grant id is used once, for this claim, so that a back end can tell
// a request that is sent again from a second one.
type Claim struct {
	Key    string
	Owner  Owner
	Value  string        // Owner as text, compared whole
	TTL    time.Duration // whole milliseconds
	Wait   bool          // wait until the key is free, or ctx ends; false: answer at once
	Pause  Backoff       // between two looks at a held key, where the back end has to look
	Holder string        // who re-enters; empty: nobody
}

// Grant is a claim that was granted.
type Grant struct {
	Claim
	Sent      time.Time     // when the request that was granted, or last renewed, was about to leave; with monotonic clock
	Lasts     time.Duration // from Sent on the back end keeps the key at least this long
	Token     Token         // 0 where the back end has none that survives its own failures
	Hold      string        // id of the outermost grant that this one re-enters, or its own grant id
	Waited    bool          // somebody else held the key first
	Uncertain bool          // a request of the claim may still be on its way: freeing the key has to outlive it

	// Ended is closed when the back end learns by itself that the grant is gone. Nil where only a renewal tells.
	Ended <-chan struct{}
}

// Backend is a system that keeps at most one holder a key. Its implementations are in the packages beside this one.
// Every method is safe for concurrent use and is bounded by its ctx.
type Backend interface {
	// Acquire makes the claim hold its key. It is idempotent by grant id. [ErrHeld] and any other error mean that
	// the claim holds nothing and waits for nothing; an error that is [ErrUnknownOutcome] (perhaps among others)
	// means that it may, and that the caller has to Abandon it.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Renew starts the lease anew and returns the grant with its new Sent and Lasts. It never brings back a grant
	// that is gone: that is [ErrLost]. Any other error leaves the lease as it was, or prolongs it unnoticed.
	Renew(ctx context.Context, g Grant) (Grant, error)

	// Release frees the key if this very grant holds it. [ErrLost]: it does not hold it (any more). Any other
	// error is an unknown outcome.
	Release(ctx context.Context, g Grant) error

	// Abandon makes sure that a claim whose outcome is unknown holds nothing, waits for nothing, and never will
	// for as long as its TTL, even if its request is still on the way. Any error: not sure, call again.
	Abandon(ctx context.Context, c Claim) error

	// List returns up to limit keys that are held, in no order.
	List(ctx context.Context, limit int) ([]Held, error)

	// Properties says what the back end promises.
	Properties() Properties

	// Close ends what the back end started itself. Clients it was given stay open.
	Close() error
}

// FencedBackend is a [Backend] whose grants carry a token that grows with every grant of a key and that survives
// the back end's own failures. A Redis counter does not qualify: after a failover two holders get the same number.
type FencedBackend interface {
	Backend
	// Fencing says where the tokens come from.
	Fencing() TokenOrigin
}

// Held is a key that somebody holds.
type Held struct {
	Key       string        `json:"key"`
	Value     string        `json:"value"`               // as the back end has it
	Owner     Owner         `json:"owner"`               // decoded from Value; zero if Value is not ours
	Remaining time.Duration `json:"remaining_ns"`        // until it is free if nobody renews it; 0 if the back end does not tell
	Token     Token         `json:"token,omitempty"`     // 0 where there is none
	Waiting   int           `json:"waiting"`             // waiters (of Redis: processes that wait), -1 if the back end does not tell
	Since     time.Time     `json:"since,omitzero"`      // when it was granted, by the holder's wall clock
	Reentered int           `json:"reentered,omitempty"` // grants beyond the first, where the lock is re-entrant
}

// NewHeld decodes the value of a held key.
func NewHeld(key, value string) Held {
	h := Held{Key: key, Value: value}
	if owner, err := ParseOwner(value); err == nil {
		h.Owner, h.Since = owner, owner.Time
	}
	return h
}
