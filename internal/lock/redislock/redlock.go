package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// RedlockConfig says how to keep leases on independent servers.
type RedlockConfig struct {
	Prefix    string        // of all keys; [DefaultPrefix] if empty
	NodeLimit time.Duration // how long one server may take to answer; 50 ms if 0
}

// Redlock keeps each lease on the majority of independent Redis servers, as described at
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/.
//
// It outlives the loss of a minority. It does not outlive a server that forgets (no fsync) or whose clock jumps at
// the wrong time, and it knows nothing of a holder that is paused: like every lease it needs a token where it
// matters, and has none.
type Redlock struct {
	config RedlockConfig
	names  names
	nodes  []*node
	poller lock.Poller
}

// NewRedlock returns a back end on three or more servers that replicate nothing to each other. Five outlive the loss
// of two.
func NewRedlock(clients []*redis.Client, c RedlockConfig) (*Redlock, error) {
	if len(clients) < 3 || len(clients)%2 == 0 {
		return nil, fmt.Errorf("%w: %d servers: an odd number from 3 is needed", lock.ErrInvalid, len(clients))
	}
	names, err := newNames(c.Prefix)
	if err != nil {
		return nil, err
	}
	if c.NodeLimit == 0 {
		c.NodeLimit = 50 * time.Millisecond
	}
	r := &Redlock{config: c, names: names}
	for _, client := range clients {
		if err := checkOptions(client.Options().MaxRetries, client.Options().ContextTimeoutEnabled); err != nil {
			return nil, err
		}
		r.nodes = append(r.nodes, &node{client: client})
	}
	return r, nil
}

func (r *Redlock) quorum() int { return len(r.nodes)/2 + 1 }

// Properties says what the lease promises. A TTL that asking the servers could use up is refused.
func (r *Redlock) Properties() lock.Properties {
	return lock.Properties{
		Backend: "redlock", Clock: lock.MajorityWall, MinTTL: max(lock.MinTTL, 4*r.config.NodeLimit), Wake: lock.Polled,
		Death: lock.AfterTTL, Restart: lock.AsStorage, Failover: lock.Majority,
	}
}

// votes is what the servers answered.
type votes struct {
	yes     int
	no      []int64 // answers of those who refused
	unknown int
	errs    []error // of those who did not answer
}

// ask runs a script on all servers at once and waits for each no longer than its limit.
func (r *Redlock) ask(ctx context.Context, agrees int64, script *redis.Script, c lock.Claim, args ...any) votes {
	ctx, cancel := context.WithTimeout(ctx, r.config.NodeLimit)
	defer cancel()
	keys := r.names.both(c)
	var mu sync.Mutex
	var v votes
	var asking sync.WaitGroup
	for _, n := range r.nodes {
		asking.Go(func() {
			answer, err := number(n.run(ctx, script, keys, args...))
			mu.Lock()
			defer mu.Unlock()
			v.count(answer, err, agrees)
		})
	}
	asking.Wait()
	return v
}

func (v *votes) count(answer int64, err error, agrees int64) {
	switch {
	case err == nil && answer == agrees:
		v.yes++
	case err == nil:
		v.no = append(v.no, answer)
	default:
		v.errs = append(v.errs, err)
		if errors.Is(err, lock.ErrUnknownOutcome) {
			v.unknown++
		}
	}
}

// Acquire implements [lock.Backend].
func (r *Redlock) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	return r.poller.Acquire(ctx, c, lock.Source{Try: r.try})
}

func (r *Redlock) try(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	sent := time.Now()
	v := r.ask(ctx, 0, acquireScript, c, c.Value, c.TTL.Milliseconds())
	// The lock's margin covers more than the 1 % and 2 ms that the algorithm allows for the drift of clocks.
	valid := time.Until(sent.Add(c.TTL - lock.Margin(c.TTL)))
	if v.yes >= r.quorum() && valid > 0 {
		return lock.Grant{Claim: c, Sent: sent, Lasts: c.TTL, Hold: c.Owner.Grant, Uncertain: v.unknown > 0}, nil
	}
	return lock.Grant{}, r.withdraw(ctx, c, v)
}

// withdraw frees what a vote that was not won left on some servers, and says why it was not won.
func (r *Redlock) withdraw(ctx context.Context, c lock.Claim, v votes) error {
	var why error
	switch {
	case len(v.no) > 0:
		why = r.held(v)
	case len(v.errs) > 0:
		why = fmt.Errorf("redlock: %d of %d servers agreed: %w", v.yes, len(r.nodes), errors.Join(v.errs...))
	default:
		why = fmt.Errorf("redlock: the servers took longer than the lease")
	}
	if v.yes+v.unknown == 0 {
		return why
	}
	freed := r.ask(context.WithoutCancel(ctx), 1, releaseScript, c, c.Value, 0)
	if v.unknown > 0 || len(freed.errs) > 0 {
		return fmt.Errorf("%w; %w", why, lock.ErrUnknownOutcome)
	}
	return why
}

// held tells when a majority may be free: when the servers that are held the shortest are.
func (r *Redlock) held(v votes) error {
	slices.Sort(v.no)
	needed := r.quorum() - v.yes - 1 // how many of those who refused have to expire, from 0
	if needed < 0 || needed >= len(v.no) {
		return &lock.HeldError{}
	}
	return &lock.HeldError{Remaining: time.Duration(max(v.no[needed], 0)) * time.Millisecond}
}

// Renew implements [lock.Backend]. A majority has to agree; a server that has forgotten is not told again.
func (r *Redlock) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	sent := time.Now()
	v := r.ask(ctx, 1, renewScript, g.Claim, g.Value, g.TTL.Milliseconds())
	switch {
	case v.yes >= r.quorum():
		g.Sent, g.Lasts = sent, g.TTL
		return g, nil
	case len(r.nodes)-len(v.no) < r.quorum():
		return lock.Grant{}, lock.ErrLost
	default:
		return lock.Grant{}, fmt.Errorf("redlock: %d of %d servers renewed: %w", v.yes, len(r.nodes), errors.Join(v.errs...))
	}
}

// Release implements [lock.Backend].
func (r *Redlock) Release(ctx context.Context, g lock.Grant) error {
	mark := time.Duration(0)
	if g.Uncertain {
		mark = g.TTL
	}
	v := r.ask(ctx, 1, releaseScript, g.Claim, g.Value, mark.Milliseconds())
	switch {
	case v.yes >= r.quorum():
		return nil
	case len(r.nodes)-len(v.no) < r.quorum():
		return lock.ErrLost
	default:
		return fmt.Errorf("redlock: %w: %d of %d servers released: %w", lock.ErrUnknownOutcome, v.yes, len(r.nodes), errors.Join(v.errs...))
	}
}

// Abandon implements [lock.Backend]. What a minority still has cannot win a vote.
func (r *Redlock) Abandon(ctx context.Context, c lock.Claim) error {
	v := r.ask(ctx, 1, releaseScript, c, c.Value, c.TTL.Milliseconds())
	if v.yes+len(v.no) < r.quorum() {
		return fmt.Errorf("redlock: %w", errors.Join(v.errs...))
	}
	return nil
}

// List implements [lock.Backend]: what the same grant holds on a majority.
func (r *Redlock) List(ctx context.Context, limit int) ([]lock.Held, error) {
	lists, errs := make([][]lock.Held, len(r.nodes)), make([]error, len(r.nodes))
	var asking sync.WaitGroup
	for i, n := range r.nodes {
		asking.Go(func() { lists[i], errs[i] = r.names.list(ctx, n.client, limit, describe) })
	}
	asking.Wait()
	count := make(map[string]int)
	var all []lock.Held
	for _, h := range slices.Concat(lists...) {
		if count[h.Value]++; count[h.Value] == r.quorum() {
			h.Waiting = -1
			all = append(all, h)
		}
	}
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(failed) > len(r.nodes)-r.quorum() {
		return all, errors.Join(failed...)
	}
	return all[:min(limit, len(all))], nil
}

// Close implements [lock.Backend].
func (r *Redlock) Close() error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
