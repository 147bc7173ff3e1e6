package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

//go:embed enter.lua
var enterSource string

//go:embed stay.lua
var staySource string

//go:embed leave.lua
var leaveSource string

var (
	enterScript = redis.NewScript(enterSource)
	stayScript  = redis.NewScript(staySource)
	leaveScript = redis.NewScript(leaveSource)
)

// DefaultReentrantPrefix begins the name of every re-entrant key. It is not that of plain leases, whose keys are of
// another type.
const DefaultReentrantPrefix = "relock:"

// Reentrant is a lease that its holder may be granted again while it has it: the holder is who [lock.As] names, in
// this process or in another that works for it. Every grant is a lease of its own and is released by its own id; the
// key is free when all are. All grants of one hold have the token of the outermost.
type Reentrant struct{ *Backend }

// NewReentrant returns a re-entrant back end. Confirmation by replicas is not offered.
func NewReentrant(client redis.UniversalClient, c Config) (*Reentrant, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultReentrantPrefix
	}
	if c.Confirm != 0 {
		return nil, fmt.Errorf("%w: a re-entrant lease is not confirmed by replicas", lock.ErrInvalid)
	}
	b, err := New(client, c)
	if err != nil {
		return nil, err
	}
	b.describe = describeReentrant
	return &Reentrant{b}, nil
}

// Properties says what the lease promises.
func (r *Reentrant) Properties() lock.Properties {
	p := r.Backend.Properties()
	p.Backend, p.Reenter = "redis-reentrant", true
	return p
}

// Acquire implements [lock.Backend].
func (r *Reentrant) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	if c.Holder == "" {
		c.Holder = c.Owner.Grant // nobody else
	}
	watch := lock.Source{Try: r.enter, Watch: r.watch}
	if c.Wait { // who may re-enter must not queue behind those who wait for it to leave
		now := c
		now.Wait = false
		if g, err := r.poller.Acquire(ctx, now, watch); err == nil || !errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnknownOutcome) {
			return g, err
		}
	}
	return r.poller.Acquire(ctx, c, watch)
}

func (r *Reentrant) enter(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	g := lock.Grant{Claim: c, Sent: time.Now(), Lasts: c.TTL}
	keys := r.names.both(c)
	n, err := r.node(ctx, keys[0])
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redis: %w", err)
	}
	answer, err := n.run(ctx, enterScript, keys, c.Holder, c.Value, c.Owner.Grant, c.TTL.Milliseconds())
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redis: %w", r.noteMoved(ctx, err))
	}
	pair, ok := answer.([]any)
	if !ok || len(pair) != 2 {
		return lock.Grant{}, fmt.Errorf("redis: enter answered %v", answer)
	}
	code, _ := pair[0].(int64)
	if code == -2 {
		return lock.Grant{}, fmt.Errorf("%w: %s was entered 1000 times", lock.ErrInvalid, c.Key)
	}
	g.Hold, _ = pair[1].(string)
	return g, granted(code)
}

// Renew implements [lock.Backend].
func (r *Reentrant) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	g.Sent, g.Lasts = time.Now(), g.TTL
	answer, err := r.run(ctx, stayScript, []string{r.names.lock(g.Key)}, g.Owner.Grant, g.TTL.Milliseconds())
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redis: %w", err)
	}
	if answer != 1 {
		return lock.Grant{}, lock.ErrLost
	}
	return g, nil
}

// Release implements [lock.Backend].
func (r *Reentrant) Release(ctx context.Context, g lock.Grant) error {
	mark := time.Duration(0)
	if g.Uncertain {
		mark = g.TTL
	}
	return r.leave(ctx, g.Claim, mark)
}

// Abandon implements [lock.Backend].
func (r *Reentrant) Abandon(ctx context.Context, c lock.Claim) error {
	if err := r.leave(ctx, c, c.TTL); err != nil && !errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}

func (r *Reentrant) leave(ctx context.Context, c lock.Claim, mark time.Duration) error {
	answer, err := r.run(ctx, leaveScript, r.names.both(c), c.Owner.Grant, mark.Milliseconds())
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if answer != 1 {
		return lock.ErrLost
	}
	return nil
}

// describeReentrant is [describe] for re-entrant locks.
func describeReentrant(ctx context.Context, pipe redis.Pipeliner, name, key string) func() (lock.Held, bool) {
	fields, left, waiting := pipe.HGetAll(ctx, name), pipe.PTTL(ctx, name), pipe.PubSubNumSub(ctx, name)
	return func() (lock.Held, bool) {
		if fields.Err() != nil || left.Val() <= 0 {
			return lock.Held{}, false
		}
		h := lock.NewHeld(key, fields.Val()["owner"])
		h.Remaining, h.Waiting, h.Reentered = left.Val(), int(waiting.Val()[name]), -1
		for field := range fields.Val() {
			if strings.HasPrefix(field, "g:") {
				h.Reentered++
			}
		}
		return h, true
	}
}
