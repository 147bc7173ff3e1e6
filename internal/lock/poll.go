package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Backoff is how long to pause between tries: a random time of at most Min after the first, twice that after the
// second, and so on up to Max ("full jitter": tries of many clients spread evenly).
type Backoff struct {
	Min, Max time.Duration
}

// Pause returns a random pause after the try of that number, 0 for the first.
func (b Backoff) Pause(try int) time.Duration {
	limit := b.Max
	if try < 30 && b.Min<<try < limit {
		limit = b.Min << try
	}
	if limit <= 0 {
		return 0
	}
	return rand.N(limit)
}

// An answer to an acquire is awaited for at most attemptLimit, and a failed one is sent again, with the same grant
// id, attempts times in all. Three ride out a lost reply and a connection that the pool did not know to be dead.
const (
	attemptLimit = time.Second
	attempts     = 3
)

// Poller acquires keys on a back end that cannot be waited on, only asked. The waiters of one process take turns
// for a key in the order in which they came, so one of them at a time asks.
type Poller struct {
	mu    sync.Mutex
	turns map[string]*turn // of keys that somebody here waits for; guarded by mu
}

// turn is the queue of this process for one key; who is at its head may ask.
type turn struct {
	head  chan struct{} // full while somebody has the turn
	users int           // who have or want it; guarded by Poller.mu

	// Of whoever is at the head:
	watching bool
	freed    <-chan struct{}
	stop     func()
}

// Source is how a [Poller] asks a back end.
type Source struct {
	// Try asks once for the claim, under the same rules as [Backend.Acquire].
	Try func(ctx context.Context, c Claim) (Grant, error)
	// Watch returns a channel that receives when the key may have become free, and once when that begins to be
	// told; stop ends it. Nil where nobody tells.
	Watch func(key string) (freed <-chan struct{}, stop func())
}

// Acquire asks for the claim and, if it may wait, asks again until it is granted or ctx ends. A request on its way
// is never cancelled with ctx but bounded by a limit of its own, so that its outcome is usually known.
func (p *Poller) Acquire(ctx context.Context, c Claim, s Source) (Grant, error) {
	w := waiter{claim: c, source: s}
	if !c.Wait || !p.queued(c.Key) { // who comes when nobody waits need not queue to be told that the key is free
		grant, err := w.ask(ctx)
		if !c.Wait || !errors.Is(err, ErrHeld) {
			return grant, err
		}
	}
	t := p.join(c.Key)
	defer p.leave(c.Key, t)
	select {
	case t.head <- struct{}{}:
	case <-ctx.Done():
		return Grant{}, w.explain(ctx.Err())
	}
	defer func() { <-t.head }()
	return w.wait(ctx, t)
}

// queued reports whether somebody of this process waits for a key.
func (p *Poller) queued(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turns[key] != nil
}

// join enters the queue for a key.
func (p *Poller) join(key string) *turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turns == nil {
		p.turns = make(map[string]*turn)
	}
	t := p.turns[key]
	if t == nil {
		t = &turn{head: make(chan struct{}, 1)}
		p.turns[key] = t
	}
	t.users++
	return t
}

// leave quits the queue; the last one ends the watching.
func (p *Poller) leave(key string, t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	delete(p.turns, key)
	if t.watching {
		t.stop()
	}
}

// waiter is one claim being asked for.
type waiter struct {
	claim   Claim
	source  Source
	unknown bool // a request of the claim may have had its effect, or may still be on its way
	waited  bool
}

// wait asks until the claim is granted, ctx ends, or the back end fails.
func (w *waiter) wait(ctx context.Context, t *turn) (Grant, error) {
	for try := 0; ; try++ {
		grant, err := w.ask(ctx)
		var held *HeldError
		if !errors.As(err, &held) {
			return grant, err
		}
		w.waited = true
		if !t.watching && w.source.Watch != nil {
			t.watching = true
			t.freed, t.stop = w.source.Watch(w.claim.Key)
		}
		if err := sleep(ctx, w.pause(try, held.Remaining), t.freed); err != nil {
			return Grant{}, w.explain(err)
		}
	}
}

// pause is how long to wait before the next look: no longer than the key can stay held unless it is renewed.
func (w *waiter) pause(try int, remaining time.Duration) time.Duration {
	pause := w.claim.Pause.Pause(try)
	if w.source.Watch != nil {
		pause = w.claim.Pause.Max // looking is only for what nobody tells: a holder that died, a message that got lost
	}
	if remaining > 0 {
		pause = min(pause, remaining+time.Millisecond)
	}
	return pause
}

// ask sends the claim until there is a clear answer, a few times at most.
func (w *waiter) ask(ctx context.Context) (Grant, error) {
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return Grant{}, w.explain(err)
		}
		request := bound(ctx, min(attemptLimit, w.claim.TTL-Margin(w.claim.TTL)))
		grant, err := w.source.Try(request, w.claim)
		request.release()
		if err == nil {
			grant.Waited, grant.Uncertain = w.waited, grant.Uncertain || w.unknown
			return grant, nil
		}
		w.unknown = w.unknown || errors.Is(err, ErrUnknownOutcome)
		if errors.Is(err, ErrHeld) || errors.Is(err, ErrInvalid) || try+1 == attempts {
			return Grant{}, w.explain(err)
		}
		if err := sleep(ctx, Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}.Pause(try), nil); err != nil {
			return Grant{}, w.explain(err)
		}
	}
}

// explain adds to an error that the claim may nevertheless have been granted.
func (w *waiter) explain(err error) error {
	if w.unknown && !errors.Is(err, ErrUnknownOutcome) {
		return fmt.Errorf("%w; %w", err, ErrUnknownOutcome)
	}
	return err
}

// sleep pauses until the time is over or it is woken, or returns the error of ctx.
func sleep(ctx context.Context, pause time.Duration, woken <-chan struct{}) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
