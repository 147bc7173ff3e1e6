package lab

import (
	"context"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
)

// naiveLocks are the locks of several owners on the shared Redis, all on one key.
func (s *Stage) naiveLocks(ctx context.Context, owners ...string) ([]naiveLock, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return nil, err
	}
	locks := make([]naiveLock, len(owners))
	for i, owner := range owners {
		locks[i] = naiveLock{client: s.Client(addr), key: s.Name(), owner: owner}
	}
	return locks, nil
}

// take takes a naive lock for a holder, and says so.
func (s *Stage) take(ctx context.Context, l naiveLock, ttl time.Duration) (bool, error) {
	ok, err := l.setNX(ctx, ttl)
	if ok {
		s.Begin(l.owner, Holds, "holds the lock")
	}
	return ok, err
}

// expire waits until a naive lock has run out. Its holder does not notice.
func (s *Stage) expire(ctx context.Context, l naiveLock) error {
	return s.Until(ctx, "the lock of "+l.owner+" runs out", func() (bool, error) {
		holder, err := l.holder(ctx)
		return holder == "", err
	})
}

const shortTTL = 300 * time.Millisecond

// blindRelease is release without looking whose lock it is.
func blindRelease() *Experiment {
	return &Experiment{
		Number: 3, Name: "release-without-owner-check",
		Question: "Is it enough to delete the key when the work is done?",
		Claim: "No. Whoever is late deletes the lock of the next holder, who then lets in a third one while it works, and so on: " +
			"one slow holder breaks the lock for all that follow.",
		Setup:       "Three clients and one key in Redis with a TTL of 300 ms. A works longer than that, then releases by DEL while B holds.",
		Anomalies:   []Case{{"three believe that they hold the lock", deleteBlindly}},
		Protections: []Case{{"release by a script that compares the owner: A's late release says that it was lost, and B keeps the lock", releaseLate}},
	}
}

func deleteBlindly(ctx context.Context, s *Stage) (bool, error) {
	locks, err := s.naiveLocks(ctx, "A", "B", "C")
	if err != nil {
		return false, err
	}
	a, b, c := locks[0], locks[1], locks[2]
	if _, err := s.take(ctx, a, shortTTL); err != nil {
		return false, err
	}
	if err := s.expire(ctx, a); err != nil {
		return false, err
	}
	if _, err := s.take(ctx, b, patience); err != nil { // B's own lock does not run out here
		return false, err
	}
	if err := a.del(ctx); err != nil {
		return false, err
	}
	s.Mark("A", Wrong, "DEL: frees the lock of B")
	third, err := s.take(ctx, c, patience)
	s.Note("A, B and C work at the same time; none of them ever released a lock while it was asked to")
	return third, err
}

func releaseLate(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	locker, err := s.Locker(addr, redislock.Config{}, lock.NoRenew())
	if err != nil {
		return false, err
	}
	a, err := locker.TryAcquire(ctx, s.Name(), lock.TTL(shortTTL), lock.Meta("A"))
	if err != nil {
		return false, err
	}
	s.Begin("A", Holds, "holds the lock")
	b, err := locker.Acquire(ctx, s.Name(), lock.TTL(patience), lock.Meta("B"))
	if err != nil {
		return false, err
	}
	s.Begin("B", Holds, "holds the lock")
	late := a.Release()
	s.Mark("A", Refused, "release: %v", late)
	_, third := locker.TryAcquire(ctx, s.Name(), lock.Meta("C"))
	s.Mark("C", Refused, "acquire: %v", third)
	s.Note("A is told %q, C is told %q, and B's own release finds its lock: %v", late, third, b.Err() == nil)
	return isLost(late) && isHeld(third) && b.Release() == nil, nil
}

// getThenDelete is the owner check that is not atomic.
func getThenDelete() *Experiment {
	return &Experiment{
		Number: 4, Name: "get-then-delete",
		Question: "Is it enough to GET, compare, and DEL?",
		Claim: "No. Between the two commands the lock can run out and be granted to another, whom the DEL then robs. Check and " +
			"change have to be one step, in the server.",
		Setup:       "Two clients, one key in Redis with a TTL of 300 ms. A reads that the lock is its own, and is slow before it deletes.",
		Anomalies:   []Case{{"A deletes the lock of B though it had looked", getThenDel}},
		Protections: []Case{{"release by one script: there is no time in between", releaseLate}},
	}
}

func getThenDel(ctx context.Context, s *Stage) (bool, error) {
	locks, err := s.naiveLocks(ctx, "A", "B")
	if err != nil {
		return false, err
	}
	a, b := locks[0], locks[1]
	if _, err := s.take(ctx, a, shortTTL); err != nil {
		return false, err
	}
	mine, err := a.mine(ctx)
	if err != nil {
		return false, err
	}
	s.Mark("A", Plain, "GET: the lock is mine")
	if err := s.expire(ctx, a); err != nil {
		return false, err
	}
	if _, err := s.take(ctx, b, patience); err != nil {
		return false, err
	}
	if err := a.del(ctx); err != nil {
		return false, err
	}
	s.Mark("A", Wrong, "DEL")
	holder, err := b.holder(ctx)
	s.Note("A saw itself as the holder: %v; after A's DEL the holder is %q, though B released nothing", mine, holder)
	return mine && holder == "", err
}
