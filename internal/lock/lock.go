package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Locker grants leases: [*Lease] on a back end without tokens, [*Fenced] on one with. It is safe for concurrent
// use. What it grants is a lease, not a mutex: every grant is an object of its own, so nobody can release another's.
type Locker[L Granted] struct {
	core *core
	wrap func(*Lease) L
}

// Granted is what a locker grants.
type Granted interface{ *Lease | *Fenced }

// New returns a locker on a back end. The options are the defaults of its calls.
func New(backend Backend, defaults ...Option) *Locker[*Lease] {
	return &Locker[*Lease]{core: newCore(backend, defaults), wrap: func(l *Lease) *Lease { return l }}
}

// NewFenced returns a locker whose leases carry fencing tokens.
func NewFenced(backend FencedBackend, defaults ...Option) *Locker[*Fenced] {
	return &Locker[*Fenced]{core: newCore(backend, defaults), wrap: fence}
}

// Acquire waits until the key is free and holds it. Ctx bounds the waiting, not the lease. If ctx or the time of
// [Wait] ends first nothing is held, whatever was on its way. The error is ctx's, [ErrHeld] (waited long enough),
// [ErrInvalid], or the back end's.
func (l *Locker[L]) Acquire(ctx context.Context, key string, changes ...Option) (L, error) {
	lease, err := l.core.acquire(ctx, request{key: key, wait: true, options: l.core.defaults.with(changes)})
	if err != nil {
		return nil, err
	}
	return l.wrap(lease), nil
}

// TryAcquire holds the key if it is free, and returns [ErrHeld] if it is not. It does not wait for the holder.
func (l *Locker[L]) TryAcquire(ctx context.Context, key string, changes ...Option) (L, error) {
	lease, err := l.core.acquire(ctx, request{key: key, options: l.core.defaults.with(changes)})
	if err != nil {
		return nil, err
	}
	return l.wrap(lease), nil
}

// Do waits for the key, runs work while holding it, and releases it. It is what callers normally use.
//
// The ctx of work ends with ctx, and with [ErrLost] as its cause before anybody else can hold the key. Do waits for
// work to return; work that goes on after its ctx ended is not covered any more. If the lease was lost before work
// returned, the error is [ErrLost] besides work's own: what it did may have met another holder's doing.
func (l *Locker[L]) Do(ctx context.Context, key string, work func(context.Context, L) error, changes ...Option) error {
	lease, err := l.core.acquire(ctx, request{key: key, wait: true, options: l.core.defaults.with(changes)})
	if err != nil {
		return err
	}
	return l.run(ctx, lease, work)
}

// TryDo is Do without the waiting: [ErrHeld] if somebody else holds the key.
func (l *Locker[L]) TryDo(ctx context.Context, key string, work func(context.Context, L) error, changes ...Option) error {
	lease, err := l.core.acquire(ctx, request{key: key, options: l.core.defaults.with(changes)})
	if err != nil {
		return err
	}
	return l.run(ctx, lease, work)
}

func (l *Locker[L]) run(ctx context.Context, lease *Lease, work func(context.Context, L) error) (err error) {
	defer func() { // also when work panics
		// Unknown is no fault here: the work ended while the key was held, and the key will be free.
		if released := lease.Release(); errors.Is(released, ErrLost) {
			err = errors.Join(err, fmt.Errorf("work under %s: %w", lease.Key(), ErrLost))
		}
	}()
	bound, cancel := lease.Bind(ctx)
	defer cancel()
	return work(bound, l.wrap(lease))
}

// List returns up to limit keys that are held now, by anybody.
func (l *Locker[L]) List(ctx context.Context, limit int) ([]Held, error) {
	return l.core.backend.List(ctx, limit)
}

// Properties says what the locker promises.
func (l *Locker[L]) Properties() Properties { return l.core.properties }

// Close waits until claims whose outcome was unknown are given up, or ctx ends, and refuses new ones. Leases that
// are held go on; their owners release them. Clients given to the back end stay open.
func (l *Locker[L]) Close(ctx context.Context) error { return l.core.close(ctx) }

// core is a locker without the type of its leases.
type core struct {
	backend    Backend
	properties Properties
	defaults   options
	host       string
	pid        int

	mu       sync.Mutex
	closed   bool           // guarded by mu
	pending  int            // claims being given up; guarded by mu
	givingUp sync.WaitGroup // added to under mu while not closed
	closing  context.Context
	stop     context.CancelFunc
}

func newCore(backend Backend, defaults []Option) *core {
	c := &core{
		backend: backend, properties: backend.Properties(), defaults: defaultOptions().with(defaults),
		host: hostname(), pid: os.Getpid(),
	}
	c.closing, c.stop = context.WithCancel(context.Background())
	return c
}

// request is one call of a locker.
type request struct {
	key     string
	wait    bool
	options options
}

func (c *core) acquire(ctx context.Context, r request) (*Lease, error) {
	if err := r.options.check(r.key, c.properties); err != nil {
		return nil, err
	}
	if c.closing.Err() != nil {
		return nil, ErrClosed
	}
	started := time.Now()
	claim := c.newClaim(r, started)
	grant, err := c.claim(ctx, claim, r.options.wait)
	waited := time.Since(started)
	if err != nil {
		r.options.observer.failed(c.event(claim, waited), err, ctx.Err() != nil)
		return nil, fmt.Errorf("acquire %s: %w", r.key, err)
	}
	r.options.observer.acquired(c.event(claim, waited), grant.Waited)
	return newLease(c, grant, r.options), nil
}

func (c *core) newClaim(r request, now time.Time) Claim {
	owner := Owner{Host: c.host, PID: c.pid, Grant: newGrant(), Time: now.Truncate(time.Millisecond), Meta: r.options.meta}
	return Claim{
		Key: r.key, Owner: owner, Value: owner.String(), TTL: r.options.ttl,
		Wait: r.wait, Pause: r.options.pause, Holder: r.options.holder,
	}
}

// claim gets a grant that is still worth something, or makes sure that nothing is left of the claim.
func (c *core) claim(ctx context.Context, claim Claim, limit time.Duration) (Grant, error) {
	waiting := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w; waited %s", ErrHeld, limit))
		defer cancel()
	}
	grant, err := c.backend.Acquire(waiting, claim)
	switch {
	case err == nil && waiting.Err() != nil:
		c.giveUp(claim)
		return Grant{}, context.Cause(waiting)
	case err == nil && !time.Now().Before(deadline(grant)):
		c.giveUp(claim)
		return Grant{}, fmt.Errorf("the answer took longer than the lease: %w", ErrLost)
	case err != nil && errors.Is(err, ErrUnknownOutcome):
		c.giveUp(claim)
	}
	if err != nil && waiting.Err() != nil { // whatever else went wrong, this is why it was not tried on
		err = fmt.Errorf("%w; %w", context.Cause(waiting), err)
	}
	return grant, err
}

// Giving up is tried until the key would be free by itself. More than maxPending at a time is an outage, in which
// it would not succeed anyway: then the TTL alone frees the keys.
const (
	maxPending   = 256
	giveUpLimit  = time.Second // for one try
	giveUpPauses = 2 * time.Second
)

// giveUp sees to it that a claim holds nothing, detached from whoever made it.
func (c *core) giveUp(claim Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.pending >= maxPending {
		return
	}
	c.pending++
	c.givingUp.Go(func() {
		c.abandon(claim)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pending--
	})
}

func (c *core) abandon(claim Claim) {
	ended := time.Now().Add(claim.TTL)
	pause := Backoff{Min: 10 * time.Millisecond, Max: giveUpPauses}
	for try := 0; time.Now().Before(ended); try++ {
		ctx, cancel := context.WithTimeout(c.closing, giveUpLimit)
		err := c.backend.Abandon(ctx, claim)
		cancel()
		if err == nil || sleep(c.closing, pause.Pause(try), nil) != nil {
			return
		}
	}
}

func (c *core) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() { c.givingUp.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.stop()
	<-done
	return errors.Join(err, c.backend.Close())
}

func (c *core) event(claim Claim, waited time.Duration) Event {
	return Event{Backend: c.properties.Backend, Key: claim.Key, Owner: claim.Value, Wait: waited}
}
