package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Margin is how long before the back end may grant a key to another its holder's lease ends: 25 ms for timers and
// goroutines that run late on a busy machine, and 1 % for clocks that run at different speeds, but never more than a
// quarter.
func Margin(ttl time.Duration) time.Duration { return min(25*time.Millisecond+ttl/100, ttl/4) }

// deadline is when a grant ends for its holder. It counts from before the request was sent: the back end cannot
// have started the lease any earlier, however long the answer took.
func deadline(g Grant) time.Time { return g.Sent.Add(g.Lasts - Margin(g.Lasts)) }

// Lease is a grant: the key is held until it is released or lost. It renews itself every third of its TTL, so it
// lasts as long as this process can reach the back end in time.
//
// That a lease is held is an expectation, not a fact: a process that was stopped after it looked goes on believing.
// What must not happen twice is guarded by a [Token] where it is written.
type Lease struct {
	core     *core
	options  options
	claim    Claim
	token    Token
	acquired time.Time

	mu       sync.Mutex
	grant    Grant             // its deadline moves with every renewal; guarded by mu
	over     error             // nil while held, then ErrLost or ErrReleased; guarded by mu
	lostAt   time.Time         // guarded by mu
	renewAt  time.Time         // guarded by mu
	renewing chan struct{}     // closed when the renewal on its way is back; nil if none is; guarded by mu
	timer    *time.Timer       // fires at the next renewal or at the deadline, whichever is first
	lost     chan struct{}     // made when somebody asks for it; guarded by mu
	ended    chan struct{}     // closed when the lease is over; nil if nobody has to know; guarded by mu
	bound    map[*binding]bool // contexts that end with the lease; guarded by mu

	release sync.Once
	answer  error // of Release; written once, by release
}

// Fenced is a lease with a fencing token. Only back ends whose tokens survive their own failures grant it.
type Fenced struct{ *Lease }

func fence(l *Lease) *Fenced { return &Fenced{l} }

// Fence returns the token: greater than that of every earlier grant of the key.
func (f *Fenced) Fence() Token { return f.token }

func newLease(c *core, g Grant, o options) *Lease {
	l := &Lease{core: c, options: o, claim: g.Claim, token: g.Token, acquired: time.Now(), grant: g}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewAt = g.Sent.Add(g.Lasts / 3)
	l.timer = time.AfterFunc(l.nextLocked(time.Now()), l.tick)
	if g.Ended != nil {
		l.ended = make(chan struct{})
		go l.watch(g.Ended, l.ended)
	}
	return l
}

// watch ends the lease when the back end says so, and ends with the lease.
func (l *Lease) watch(gone, ended <-chan struct{}) {
	select {
	case <-gone:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.over == nil {
			l.loseLocked()
		}
	case <-ended:
	}
}

// Key is what is held.
func (l *Lease) Key() string { return l.claim.Key }

// Owner is the value under which the key is held: host, process, grant id, time and meta.
func (l *Lease) Owner() string { return l.claim.Value }

// Deadline is when the lease ends unless it is renewed, on the monotonic clock.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return deadline(l.grant)
}

// Lost is closed when the lease is lost: its deadline passed without a renewal, or the back end said that it is
// gone. It is not closed by Release.
func (l *Lease) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.over == ErrLost { //nolint:errorlint // our own value, never wrapped
			close(l.lost)
		}
	}
	return l.lost
}

// Err is nil while the lease is held, by the clock, not by a timer that may be late: to be asked right before what
// needs the lease. Afterwards it is [ErrLost] or [ErrReleased].
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil && !time.Now().Before(deadline(l.grant)) {
		l.loseLocked()
	}
	return l.over
}

// binding is a ctx that ends with a lease.
type binding struct{ end context.CancelCauseFunc }

// Bind returns a ctx for work under the lease: it ends with parent, with cancel, with the lease (cause [ErrLost])
// and with its release (cause [ErrReleased]).
func (l *Lease) Bind(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	b := &binding{end}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		end(l.over)
	} else {
		if l.bound == nil {
			l.bound = make(map[*binding]bool)
		}
		l.bound[b] = true
	}
	return ctx, func() {
		end(context.Canceled)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bound, b)
	}
}

// endLocked ends the lease and all that is bound to it.
func (l *Lease) endLocked(how error) {
	l.over = how
	l.timer.Stop()
	for b := range l.bound {
		b.end(how)
	}
	clear(l.bound)
	if l.ended != nil {
		close(l.ended)
	}
}

// tick is called by the timer: time to renew, or the lease is over.
func (l *Lease) tick() {
	l.mu.Lock()
	now := time.Now()
	if l.over == nil && !now.Before(deadline(l.grant)) {
		l.loseLocked()
	}
	if l.over != nil {
		l.mu.Unlock()
		return
	}
	if l.options.noRenew || l.renewing != nil || now.Before(l.renewAt) {
		l.timer.Reset(l.nextLocked(now))
		l.mu.Unlock()
		return
	}
	renewing := make(chan struct{})
	l.renewing = renewing
	l.timer.Reset(deadline(l.grant).Sub(now)) // a renewal on its way does not keep the lease alive
	grant := l.grant
	l.mu.Unlock()

	l.renew(grant, now)
	close(renewing)
}

// nextLocked is how long until the lease needs attention.
func (l *Lease) nextLocked(now time.Time) time.Duration {
	next := deadline(l.grant)
	if !l.options.noRenew && l.renewing == nil && l.renewAt.Before(next) {
		next = l.renewAt
	}
	return next.Sub(now)
}

// renew tries once, for a third of the TTL or for what is left of the lease.
func (l *Lease) renew(grant Grant, now time.Time) {
	left := deadline(grant).Sub(now)
	ctx, cancel := context.WithTimeout(context.Background(), min(left, grant.Lasts/3))
	renewed, err := l.core.backend.Renew(ctx, grant)
	cancel()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = nil
	if l.over != nil { // released meanwhile, or the answer came too late
		return
	}
	event := l.eventLocked(Renewed)
	event.Margin = left
	switch {
	case err == nil:
		l.grant = renewed
		l.renewAt = renewed.Sent.Add(renewed.Lasts / 3)
		l.options.observer.tell(event)
	case errors.Is(err, ErrLost):
		l.loseLocked()
		return
	default:
		const perLease = 12 // tries in what is left after the first failed, roughly
		l.renewAt = time.Now().Add(max(grant.Lasts/perLease, 5*time.Millisecond))
		event.Kind, event.Err = RenewFailed, err
		l.options.observer.tell(event)
	}
	l.timer.Reset(l.nextLocked(time.Now()))
}

// loseLocked ends a lease that nobody released.
func (l *Lease) loseLocked() {
	l.lostAt = time.Now()
	l.endLocked(ErrLost)
	if l.lost != nil {
		close(l.lost)
	}
	l.options.observer.tell(l.eventLocked(Lost))
}

func (l *Lease) eventLocked(kind Kind) Event {
	return Event{
		Kind: kind, Backend: l.core.properties.Backend, Key: l.claim.Key, Owner: l.claim.Value,
		Hold: time.Since(l.acquired),
	}
}

// Release frees the key. It may be called any number of times, from anywhere, and does not depend on the ctx of
// whoever calls: it is bounded by three tries of a second. It has three answers:
//
//   - nil: the key was held until this call, and is free.
//   - [ErrLost]: the key was not held any more. Nothing of a later holder was touched.
//   - [ErrUnknownOutcome]: the back end did not answer. The key is freed in the background, or by its TTL.
func (l *Lease) Release() error {
	l.release.Do(func() { l.answer = l.finish() })
	return l.answer
}

// finish stops the renewals, waits for the one on its way, and frees the key.
func (l *Lease) finish() error {
	l.mu.Lock()
	if l.over == nil && !time.Now().Before(deadline(l.grant)) {
		l.loseLocked()
	}
	lost := l.over != nil
	if !lost {
		l.endLocked(ErrReleased)
	}
	renewing := l.renewing
	l.mu.Unlock()

	if renewing != nil {
		<-renewing
	}
	err := l.core.free(l.grant) // nobody changes it any more
	return l.report(err, lost)
}

// report turns the back end's answer into the answer of Release.
func (l *Lease) report(err error, lost bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	event := l.eventLocked(Released)
	switch {
	case lost:
		event.Kind, event.Late = Late, time.Since(l.lostAt)
		err = fmt.Errorf("release %s: %w", l.claim.Key, ErrLost)
	case errors.Is(err, ErrLost):
		event.Kind = Lost
	}
	event.Err = err
	l.options.observer.tell(event)
	return err
}

// free releases a grant, sending the request again if the answer is lost.
func (c *core) free(g Grant) error {
	const limit = time.Second
	pause := Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	var failed error
	for try := range attempts {
		request := bound(context.Background(), limit)
		err := c.backend.Release(request, g)
		request.release()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrLost) && failed == nil:
			return fmt.Errorf("release %s: %w", g.Key, err)
		case errors.Is(err, ErrLost) && time.Now().Before(deadline(g)):
			// Nothing but our own first request can have freed it: the lease has not run out yet.
			return nil
		}
		failed = err
		_ = sleep(context.Background(), pause.Pause(try), nil) // Background never ends
	}
	c.giveUp(g.Claim)
	return fmt.Errorf("release %s: %w: %w", g.Key, ErrUnknownOutcome, failed)
}
