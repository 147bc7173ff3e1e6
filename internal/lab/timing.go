package lab

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
)

// Work whose time is lognormal, as that of requests is: half of it takes less than the median, a few much more.
const (
	workMedian = 40 * time.Millisecond
	workSigma  = 0.5
	workItems  = 3000 // so that one in a hundred is a number that can be told from none
	workLocks  = 60   // each with two workers
)

// workTime draws how long a piece of work takes.
func workTime(random *rand.Rand) time.Duration {
	return time.Duration(float64(workMedian) * math.Exp(workSigma*random.NormFloat64()))
}

// workP99 is the time that 99 of 100 pieces of work keep: 2.326 standard deviations above the mean of the logarithm.
func workP99() time.Duration {
	return time.Duration(float64(workMedian) * math.Exp(workSigma*2.326))
}

// leaseFromP99 is a lease as long as the work usually takes.
func leaseFromP99() *Experiment {
	return &Experiment{
		Number: 13, Name: "lease-from-p99",
		Question: "How long should a lease be: as long as 99 of 100 pieces of work take?",
		Claim: "Then one in a hundred overlaps with the next holder's, in the best case, with no pause, no failover and no clock in " +
			"sight. A short lease that is renewed follows the work, and ends it when it cannot.",
		Setup: "3,000 pieces of work of lognormal length (median 40 ms) under 60 locks in one Redis, two workers each; the TTL is the " +
			"99th percentile, 128 ms.",
		Anomalies:   []Case{{"about one in a hundred works while the next holder does", overlapNaively}},
		Protections: []Case{{"deadline and renewal: no two work at the same time, and all of it gets done", overlapNever}},
	}
}

// shift counts who works on one lock at a time.
type shift struct {
	working  atomic.Int32
	overlaps *atomic.Int64
}

// work works for a time, or until ctx ends; it notices if somebody else works, too.
func (s *shift) work(ctx context.Context, d time.Duration) error {
	if s.working.Add(1) > 1 {
		s.overlaps.Add(1)
	}
	defer s.working.Add(-1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shifts has two workers on each lock until all work is done; do is one piece of work under the lock of a number.
func shifts(ctx context.Context, do func(ctx context.Context, lock int, on *shift, d time.Duration) error) (overlaps int64, err error) {
	var count, left atomic.Int64
	left.Store(workItems)
	on := make([]shift, workLocks)
	errs := make([]error, 2*workLocks)
	var workers sync.WaitGroup
	for w := range 2 * workLocks {
		on[w/2].overlaps = &count
		workers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for left.Add(-1) >= 0 && errs[w] == nil {
				errs[w] = do(ctx, w/2, &on[w/2], workTime(random))
			}
		})
	}
	workers.Wait()
	return count.Load(), errors.Join(errs...)
}

func overlapNaively(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	client := s.Client(addr)
	overlaps, err := shifts(ctx, func(ctx context.Context, number int, on *shift, d time.Duration) error {
		l := naiveLock{client: client, key: s.numbered(number), owner: uuid.NewString()}
		for {
			ok, err := l.setNX(ctx, workP99())
			if err != nil {
				return err
			}
			if ok {
				break
			}
			if err := s.wait(ctx, time.Millisecond); err != nil { // the poll of a spin lock
				return err
			}
		}
		if err := on.work(ctx, d); err != nil {
			return err
		}
		mine, err := l.mine(ctx)
		if err != nil || !mine {
			return err // it ran out meanwhile
		}
		return l.del(ctx)
	})
	rate := float64(overlaps) / workItems
	s.Note("%d of %d overlapped: %.1f %%", overlaps, workItems, 100*rate)
	return rate > 0.003 && rate < 0.10, err // a busy machine makes work longer than drawn
}

func overlapNever(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	locker, err := s.Locker(addr, redislock.Config{}, lock.TTL(workP99()), lock.Wait(patience))
	if err != nil {
		return false, err
	}
	var lost atomic.Int64
	overlaps, err := shifts(ctx, func(ctx context.Context, number int, on *shift, d time.Duration) error {
		for {
			err := locker.Do(ctx, s.numbered(number), func(ctx context.Context, _ *lock.Lease) error { return on.work(ctx, d) })
			if !isLost(err) && !errors.Is(err, lock.ErrUnknownOutcome) {
				return err
			}
			lost.Add(1) // this machine was too busy to ask or renew in time: the work was ended or not begun, and is done again
		}
	})
	s.Note("%d of %d overlapped; %d were ended by their lease and done again", overlaps, workItems, lost.Load())
	return overlaps == 0, err
}

// slowCall is work that waits without a limit of its own.
func slowCall() *Experiment {
	return &Experiment{
		Number: 14, Name: "slow-call",
		Question: "What if something under the lock takes longer than the lease?",
		Claim: "Work without a timeout outlives any lease, and ends beside the next holder's. Work under Do has a deadline: its " +
			"context ends before another can be granted the lock.",
		Setup: "A lock of 300 ms in Redis. Under it, A asks Postgres for something that does not come (a statement that waits), and " +
			"B waits for the lock.",
		Anomalies:   []Case{{"A is still at work when B holds the lock", waitForever}},
		Protections: []Case{{"Do: A's work is ended before B is granted the lock", waitBounded}},
	}
}

// forever is a statement that takes longer than any lease here.
const forever = "SELECT pg_sleep(20)"

func waitForever(ctx context.Context, s *Stage) (bool, error) {
	locks, err := s.naiveLocks(ctx, "A", "B")
	if err != nil {
		return false, err
	}
	pool, err := s.store(ctx)
	if err != nil {
		return false, err
	}
	if _, err := s.take(ctx, locks[0], shortTTL); err != nil {
		return false, err
	}
	work, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { _, err := pool.Exec(work, forever); done <- err }()
	defer func() { end(); <-done }()
	s.Begin("A", Plain, "waits for Postgres")
	if err := s.expire(ctx, locks[0]); err != nil {
		return false, err
	}
	ok, err := s.take(ctx, locks[1], patience)
	select {
	case ended := <-done:
		return false, errors.Join(err, ended)
	default:
		s.Mark("A", Wrong, "still at work")
		return ok, err
	}
}

func waitBounded(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	pool, err := s.store(ctx)
	if err != nil {
		return false, err
	}
	locker, err := s.Locker(addr, redislock.Config{}, lock.TTL(shortTTL), lock.NoRenew(), lock.Wait(patience))
	if err != nil {
		return false, err
	}
	working, ended := make(chan struct{}), make(chan time.Time, 1)
	outcome := make(chan error, 1)
	go func() {
		outcome <- locker.Do(ctx, s.Name(), func(ctx context.Context, _ *lock.Lease) error {
			s.Begin("A", Holds, "holds the lock, waits for Postgres")
			context.AfterFunc(ctx, func() { ended <- time.Now(); s.End("A", Holds) })
			close(working)
			_, err := pool.Exec(ctx, forever)
			return err
		})
	}()
	<-working
	b, err := locker.Acquire(ctx, s.Name(), lock.Meta("B"))
	granted := time.Now()
	came := <-outcome
	if err != nil {
		return false, err
	}
	s.Begin("B", Holds, "holds the lock")
	at := <-ended
	s.Mark("A", Refused, "%v", came)
	s.Note("A was told to end %v before B was granted the lock", granted.Sub(at).Round(time.Millisecond))
	return isLost(came) && at.Before(granted), b.Release()
}
