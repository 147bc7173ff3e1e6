package lab

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// quorum is five independent Redis servers, of which A reaches the first three only: enough for a majority.
type quorum struct {
	third *sandbox.Redis // the server that A's and B's majorities share
	a, b  lockSpec
}

// blow is what befalls the third server: how it has to be run for that, and how it comes.
type blow struct {
	config sandbox.RedisConfig
	strike func(ctx context.Context, s *Stage, third *sandbox.Redis) error
}

func (s *Stage) quorum(ctx context.Context, kind string, config sandbox.RedisConfig) (q quorum, err error) {
	if q.third, err = s.OwnRedis(ctx, config); err != nil {
		return q, err
	}
	others, err := s.OwnMasters(ctx, 4)
	if err != nil {
		return q, err
	}
	addrs := slices.Insert(others.Addrs(), 2, q.third.Addr())
	q.a = lockSpec{Kind: kind, Servers: slices.Clone(addrs), TTL: time.Minute}
	q.b = lockSpec{Kind: kind, Servers: addrs, TTL: time.Minute}
	for i := range q.a.Servers[3:] {
		wire, err := s.Proxy(addrs[3+i])
		if err != nil {
			return q, err
		}
		wire.Cut()
		q.a.Servers[3+i] = wire.Addr()
	}
	return q, nil
}

// twoMajorities plays A and B, each with a majority, after a blow to the server that both share.
func twoMajorities(kind, how string, prepare func(context.Context, *Stage) (blow, error), seen func(played) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		blow, err := prepare(ctx, s)
		if err != nil {
			return false, err
		}
		q, err := s.quorum(ctx, kind, blow.config)
		if err != nil {
			return false, err
		}
		strike := func(ctx context.Context, _ *actor) error { return blow.strike(ctx, s, q.third) }
		p, err := scene{A: q.a, B: q.b, How: how, Befalls: strike}.play(ctx, s)
		return err == nil && seen(p), err
	}
}

// restart kills the third server and starts it again; it comes back with what it kept on disk: nothing, by default.
func restart(context.Context, *Stage) (blow, error) { return blow{strike: killAndStart}, nil }

func killAndStart(ctx context.Context, s *Stage, third *sandbox.Redis) error {
	third.Kill()
	s.Begin("Redis 3", Gone, "killed")
	err := third.Restart(ctx)
	s.End("Redis 3", Gone)
	s.Mark("Redis 3", Plain, "back")
	return err
}

// redlockRestart: a server that forgets lets a second majority form.
func redlockRestart() *Experiment {
	return &Experiment{
		Number: 8, Name: "redlock-restart",
		Question: "Does Redlock survive the restart of one of its five servers?",
		Claim: "Only if that server did not forget. A's majority is servers 1 to 3; when 3 comes back empty, B finds a majority of " +
			"3 to 5, well within the validity time of A's lock. Nobody was paused.",
		Setup:     "Five Redis servers that keep nothing on disk; A does not reach 4 and 5. Server 3 is killed and started again.",
		Anomalies: []Case{{"two hold the lock at the same time, and both write", twoMajorities(redlock, blindly, restart, played.overwritten)}},
		Protections: []Case{
			{"fsync at every write: the server comes back with the lock, and B gets no majority", restartSynced},
			{"fencing token from Postgres: the row knows a newer holder", twoMajorities(redlockTk, withToken, restart, refusedByStore)},
		},
		Roles: holderRole,
	}
}

func restartSynced(ctx context.Context, s *Stage) (bool, error) {
	synced := sandbox.RedisConfig{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}}
	q, err := s.quorum(ctx, redlock, synced)
	if err != nil {
		return false, err
	}
	a, err := s.holder(ctx, "A", q.a, blindly)
	if err != nil {
		return false, err
	}
	if err := a.ready(ctx); err != nil {
		return false, err
	}
	if err := killAndStart(ctx, s, q.third); err != nil {
		return false, err
	}
	locker, err := s.redlock(q.b.Servers, time.Second)
	if err != nil {
		return false, err
	}
	_, refused := locker.TryAcquire(ctx, s.Name(), lock.TTL(time.Minute), lock.Meta("B"))
	s.Mark("B", Refused, "acquire: %v", refused)
	end, err := a.write(ctx, Right)
	return isHeld(refused) && end == "wrote", err
}

// redlock returns a locker on independent servers.
func (s *Stage) redlock(addrs []string, nodeLimit time.Duration) (*lock.Locker[*lock.Lease], error) {
	clients := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		clients[i] = s.Client(addr)
	}
	backend, err := redislock.NewRedlock(clients, redislock.RedlockConfig{NodeLimit: nodeLimit})
	if err != nil {
		return nil, err
	}
	return s.lockOn(backend, lock.NoRenew()), nil
}

// redlockSlowReplies: a majority that came too late.
func redlockSlowReplies() *Experiment {
	return &Experiment{
		Number: 10, Name: "redlock-slow-replies",
		Question: "May Redlock count the majority without looking at the clock?",
		Claim: "No. When the replies take longer than the TTL, the first keys are gone before the last one is set. What is left of " +
			"the validity time has to be computed, and a grant without any has to be given back everywhere.",
		Setup:       "Five Redis servers whose replies are delayed; together they take longer than the TTL.",
		Anomalies:   []Case{{"a client counts its majority when the first of its keys are gone, and another gets the lock", countBlindly}},
		Protections: []Case{{"a limit for each server, and the validity check: the late grant is refused, and no server keeps the key", refuseLate}},
	}
}

// slowMasters are five servers behind wires that delay every reply.
func (s *Stage) slowMasters(ctx context.Context, delay time.Duration) (masters sandbox.RedisGroup, slow []string, err error) {
	if masters, err = s.OwnMasters(ctx, 5); err != nil {
		return nil, nil, err
	}
	slow = make([]string, len(masters))
	for i, master := range masters {
		wire, err := s.Proxy(master.Addr())
		if err != nil {
			return nil, nil, err
		}
		wire.DelayReplies(delay)
		slow[i] = wire.Addr()
	}
	return masters, slow, nil
}

func countBlindly(ctx context.Context, s *Stage) (bool, error) {
	masters, slow, err := s.slowMasters(ctx, shortTTL/2)
	if err != nil {
		return false, err
	}
	a, err := s.setEverywhere(ctx, slow, "A", shortTTL)
	if err != nil {
		return false, err
	}
	s.Begin("A", Holds, "counts %d of 5: believes that it holds the lock", a)
	b, err := s.setEverywhere(ctx, masters.Addrs(), "B", patience)
	if b > 2 {
		s.Begin("B", Holds, "counts %d of 5: holds the lock", b)
	}
	return a > 2 && b > 2, err
}

// setEverywhere sets the key on one server after the other, as a simple Redlock does, and counts.
func (s *Stage) setEverywhere(ctx context.Context, addrs []string, owner string, ttl time.Duration) (count int, err error) {
	for i, addr := range addrs {
		ok, err := naiveLock{client: s.Client(addr), key: s.Name(), owner: owner}.setNX(ctx, ttl)
		if err != nil {
			return 0, err
		}
		if ok {
			count++
			s.Mark(owner, Plain, "key set on Redis %d", i+1)
		}
	}
	return count, nil
}

func refuseLate(ctx context.Context, s *Stage) (bool, error) {
	const ttl = time.Second
	masters, slow, err := s.slowMasters(ctx, ttl)
	if err != nil {
		return false, err
	}
	locker, err := s.redlock(slow, ttl/4) // the shortest TTL that may be asked for is well above what a server may take
	if err != nil {
		return false, err
	}
	_, refused := locker.TryAcquire(ctx, s.Name(), lock.TTL(ttl), lock.Meta("A"))
	s.Mark("A", Refused, "acquire: %v", refused)
	if refused == nil || errors.Is(refused, lock.ErrInvalid) {
		return false, nil
	}
	for i, master := range masters {
		client := s.Client(master.Addr())
		err := s.Until(ctx, "the servers are free again", func() (bool, error) {
			keys, err := client.Exists(ctx, redislock.DefaultPrefix+"{"+s.Name()+"}").Result()
			return keys == 0, err
		})
		if err != nil {
			return false, err
		}
		s.Mark("Redis", Right, "server %d has no key", i+1)
	}
	return true, nil
}
