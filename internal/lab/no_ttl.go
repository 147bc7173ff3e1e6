package lab

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
)

func isLost(err error) bool { return errors.Is(err, lock.ErrLost) }
func isHeld(err error) bool { return errors.Is(err, lock.ErrHeld) }

// noTTL is a lock without an end.
func noTTL() *Experiment {
	return &Experiment{
		Number: 5, Name: "no-ttl",
		Question:    "What happens to a lock without TTL when its holder dies?",
		Claim:       "It is held for ever: nobody is left to release it.",
		Setup:       "A process takes a lock by SET NX without a TTL and is killed (kill -9).",
		Anomalies:   []Case{{"the lock of a dead process has no end", dieWithoutTTL}},
		Protections: []Case{{"a lease without an end is not to be had", refuseNoTTL}, {"a lease of a dead process ends", dieWithTTL}},
		Roles:       holderRole,
	}
}

// die has a process take the lock and die; what is left of the lock, by Redis: -1 for ever.
func die(ctx context.Context, s *Stage, ttl time.Duration) (naiveLock, time.Duration, error) {
	locks, err := s.naiveLocks(ctx, "B")
	if err != nil {
		return naiveLock{}, 0, err
	}
	b := locks[0]
	a, err := s.holder(ctx, "A", lockSpec{Kind: setNX, Servers: []string{b.client.Options().Addr}, TTL: ttl}, blindly)
	if err != nil {
		return b, 0, err
	}
	if err := a.ready(ctx); err != nil {
		return b, 0, err
	}
	a.Kill()
	s.End("A", Holds)
	s.Begin("A", Gone, "kill -9")
	left, err := b.client.PTTL(ctx, b.key).Result()
	return b, left, err
}

func dieWithoutTTL(ctx context.Context, s *Stage) (bool, error) {
	b, left, err := die(ctx, s, 0)
	if err != nil {
		return false, err
	}
	ok, err := b.setNX(ctx, time.Second)
	s.Mark("B", Wrong, "SET NX: %v", ok)
	s.Note("PTTL of the dead holder's key is %d: it has no end", left)
	return !ok && left == -1, err
}

func dieWithTTL(ctx context.Context, s *Stage) (bool, error) {
	b, left, err := die(ctx, s, shortTTL)
	if err != nil {
		return false, err
	}
	if err := s.expire(ctx, b); err != nil {
		return false, err
	}
	ok, err := s.take(ctx, b, time.Second)
	s.Note("PTTL of the dead holder's key was %v; then B got the lock", left)
	return ok, err
}

func refuseNoTTL(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	client := s.Client(addr)
	locker, err := s.Locker(addr, redislock.Config{})
	if err != nil {
		return false, err
	}
	for _, ttl := range []time.Duration{-1, 0, time.Microsecond, lock.MinTTL - 1, lock.MaxTTL + time.Millisecond} {
		_, err := locker.TryAcquire(ctx, s.Name(), lock.TTL(ttl))
		s.Mark("A", Refused, "TTL %v: %v", ttl, err)
		if !errors.Is(err, lock.ErrInvalid) {
			return false, nil
		}
	}
	keys, err := client.Exists(ctx, redislock.DefaultPrefix+"{"+s.Name()+"}").Result()
	s.Note("TTLs of -1, 0, 1 µs, below %v and above %v are refused, and no key is left", lock.MinTTL, lock.MaxTTL)
	return keys == 0, err
}
