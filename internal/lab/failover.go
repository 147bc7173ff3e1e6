package lab

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// replicated is a Redis with a replica, and the wire between them.
type replicated struct {
	primary, replica *sandbox.Redis
	link             *fault.Proxy
}

func (s *Stage) replicated(ctx context.Context) (r replicated, err error) {
	if r.primary, err = s.OwnRedis(ctx, sandbox.RedisConfig{}); err != nil {
		return r, err
	}
	if r.link, err = s.Proxy(r.primary.Addr()); err != nil {
		return r, err
	}
	r.replica, err = s.OwnReplica(ctx, r.link.Addr())
	return r, err
}

// failover kills the primary before its replica heard of the latest writes, and promotes the replica. cut was called
// before those writes.
func (r replicated) failover(ctx context.Context, s *Stage) error {
	r.primary.Kill()
	s.Begin("Redis", Gone, "primary killed")
	if err := r.replica.Promote(ctx); err != nil {
		return err
	}
	s.Mark("Redis", Plain, "replica promoted")
	return nil
}

// cut loses everything between primary and replica from now on.
func (r replicated) cut(s *Stage) {
	r.link.Swallow()
	s.Mark("Redis", Plain, "the replica hears nothing any more")
}

// asyncFailover: Redis answers before a replica has the key.
func asyncFailover() *Experiment {
	return &Experiment{
		Number: 6, Name: "async-failover",
		Question: "Does a Redis lock survive a failover?",
		Claim: "Not for certain: Redis answers before its replicas know, so a promoted replica may have no such key and grant the " +
			"lock again. A counter in the same Redis is forgotten together with it: the second holder gets the token of the first.",
		Setup: "A Redis with a replica. The link between them is cut, A gets a lock and a token (INCR), the primary is killed, the " +
			"replica is promoted, B gets the lock there. Nobody is paused.",
		Anomalies: []Case{{"two hold the lock with the same INCR token, and both write", failOver(setNXIncr, ifNotOlder, played.overwritten)}},
		Protections: []Case{
			{"token from Postgres: the row knows a newer holder", failOver(redisTok, withToken, refusedByStore)},
			{"WAIT: a grant that no replica confirmed is not granted", unconfirmed},
		},
		Roles: holderRole,
	}
}

func failOver(kind, how string, seen func(played) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		r, err := s.replicated(ctx)
		if err != nil {
			return false, err
		}
		r.cut(s)
		p, err := scene{
			A:       lockSpec{Kind: kind, Servers: []string{r.primary.Addr()}, TTL: time.Minute},
			B:       lockSpec{Kind: kind, Servers: []string{r.replica.Addr()}, TTL: time.Minute},
			How:     how,
			Befalls: func(ctx context.Context, _ *actor) error { return r.failover(ctx, s) },
		}.play(ctx, s)
		if err != nil {
			return false, err
		}
		return seen(p), nil
	}
}

func unconfirmed(ctx context.Context, s *Stage) (bool, error) {
	r, err := s.replicated(ctx)
	if err != nil {
		return false, err
	}
	confirmed, err := s.Locker(r.primary.Addr(), redislock.Config{Confirm: 1, ConfirmLimit: shortTTL})
	if err != nil {
		return false, err
	}
	r.cut(s)
	_, refused := confirmed.TryAcquire(ctx, s.Name(), lock.TTL(time.Minute), lock.Meta("A"))
	s.Mark("A", Refused, "acquire: %v", refused)
	if err := r.failover(ctx, s); err != nil {
		return false, err
	}
	promoted, err := s.Locker(r.replica.Addr(), redislock.Config{}, lock.NoRenew())
	if err != nil {
		return false, err
	}
	b, err := promoted.TryAcquire(ctx, s.Name(), lock.TTL(time.Minute), lock.Meta("B"))
	if err != nil {
		return false, err
	}
	s.Begin("B", Holds, "holds the lock, alone")
	s.Note("A was told: %v", refused)
	return refused != nil && !errors.Is(refused, lock.ErrHeld) && b.Release() == nil, nil
}
