package lab

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
)

// hincrby is re-entrancy by a hash with a counter for each owner.
func hincrby() *Experiment {
	return &Experiment{
		Number: 15, Name: "hincrby-reentrancy",
		Question: "Is HINCRBY of an owner's counter a re-entrant lock?",
		Claim: "No. Every owner has a field of its own, so a second owner's counter goes to 1 just as well; the TTL is a second " +
			"command that may never come; and a retry after a lost reply counts twice, so that the lock outlives its last release.",
		Setup: "One hash in Redis; A increments its field, and so does B. Then the reply to an increment is lost, and it is sent again.",
		Anomalies: []Case{
			{"a second owner succeeds, and the lock has no TTL", secondOwner},
			{"a retry counts twice: the lock is held after its only release", countTwice},
		},
		Protections: []Case{
			{"one script with owner, count and TTL: a second owner is refused, the same owner enters, and the lease ends", reenter},
			{"a grant id: a retry after a lost reply counts once", reenterOnce},
		},
	}
}

func (s *Stage) redisClient(ctx context.Context) (*redis.Client, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return nil, err
	}
	return s.Client(addr), nil
}

func secondOwner(ctx context.Context, s *Stage) (bool, error) {
	client, err := s.redisClient(ctx)
	if err != nil {
		return false, err
	}
	a, err := client.HIncrBy(ctx, s.Name(), "A", 1).Result()
	if err != nil {
		return false, err
	}
	s.Begin("A", Holds, "HINCRBY A: %d, holds the lock", a)
	b, err := client.HIncrBy(ctx, s.Name(), "B", 1).Result()
	if err != nil {
		return false, err
	}
	s.Begin("B", Holds, "HINCRBY B: %d, holds the lock", b)
	left, err := client.PTTL(ctx, s.Name()).Result()
	s.Note("both counters are 1; PTTL of the lock is %d", left)
	return a == 1 && b == 1 && left == -1, err
}

// loseOneReply is the address of a wire to a server that loses the reply to the first request that matches.
func (s *Stage) loseOneReply(target string, match func([]byte) bool) (addr string, lost <-chan struct{}, err error) {
	wire, err := s.Proxy(target)
	if err != nil {
		return "", nil, err
	}
	return wire.Addr(), wire.OnRequest(match, fault.LoseReply), nil
}

// happened reports whether a signal was given.
func happened(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

func countTwice(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	wire, lost, err := s.loseOneReply(addr, mentions("hincrby"))
	if err != nil {
		return false, err
	}
	client := s.Client(wire)
	first := client.HIncrBy(ctx, s.Name(), "A", 1).Err()
	s.Mark("A", Plain, "HINCRBY A 1: %v", first)
	count, err := client.HIncrBy(ctx, s.Name(), "A", 1).Result()
	if err != nil {
		return false, err
	}
	s.Mark("A", Plain, "sent again: %d", count)
	left, err := client.HIncrBy(ctx, s.Name(), "A", -1).Result()
	s.Mark("A", Wrong, "released: %d left", left)
	return happened(lost) && first != nil && left == 1, err
}

// reentrant returns a re-entrant locker on a Redis server.
func (s *Stage) reentrant(addr string) (*lock.Locker[*lock.Lease], error) {
	backend, err := redislock.NewReentrant(s.Client(addr), redislock.Config{})
	if err != nil {
		return nil, err
	}
	return s.lockOn(backend, lock.NoRenew(), lock.TTL(time.Minute)), nil
}

func reenter(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	locker, err := s.reentrant(addr)
	if err != nil {
		return false, err
	}
	outer, err := locker.TryAcquire(ctx, s.Name(), lock.As("A"))
	if err != nil {
		return false, err
	}
	s.Begin("A", Holds, "holds the lock")
	_, refused := locker.TryAcquire(ctx, s.Name(), lock.As("B"))
	s.Mark("B", Refused, "acquire: %v", refused)
	inner, err := locker.TryAcquire(ctx, s.Name(), lock.As("A"))
	if err != nil {
		return false, err
	}
	s.Mark("A", Right, "enters again")
	held, err := locker.List(ctx, 1000)
	if err != nil {
		return false, err
	}
	var ends bool
	for _, h := range held {
		ends = ends || h.Key == s.Name() && h.Remaining > 0
	}
	if err := inner.Release(); err != nil {
		return false, err
	}
	_, still := locker.TryAcquire(ctx, s.Name(), lock.As("B"))
	s.Mark("B", Refused, "after the inner release: %v", still)
	return isHeld(refused) && isHeld(still) && ends, outer.Release()
}

func reenterOnce(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	wire, lost, err := s.loseOneReply(addr, mentions(s.Name()))
	if err != nil {
		return false, err
	}
	locker, err := s.reentrant(wire)
	if err != nil {
		return false, err
	}
	lease, err := locker.Acquire(ctx, s.Name(), lock.As("A"), lock.Wait(patience))
	if err != nil {
		return false, err
	}
	s.Begin("A", Holds, "holds the lock, though the first reply was lost")
	if err := lease.Release(); err != nil {
		return false, err
	}
	s.End("A", Holds)
	b, err := locker.TryAcquire(ctx, s.Name(), lock.As("B"))
	if err != nil {
		return false, err
	}
	s.Mark("B", Right, "gets the lock after one release")
	return happened(lost), b.Release()
}

// lostReply: a client that does not hear of its own success.
func lostReply() *Experiment {
	return &Experiment{
		Number: 24, Name: "lost-reply",
		Question: "What if the reply to SET NX is lost?",
		Claim: "The client sends it again and is told that the lock is held: by itself, which it cannot know. Nobody works until the " +
			"TTL is over. With an id for each grant the server tells a request that is sent again from a second one.",
		Setup:       "One client, one Redis, and a wire that loses the reply to the first request.",
		Anomalies:   []Case{{"the holder is told that another has the lock", refusedByItself}},
		Protections: []Case{{"a grant id: the request that is sent again finds its own grant", findsItsGrant}},
	}
}

func refusedByItself(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	wire, lost, err := s.loseOneReply(addr, mentions(s.Name()))
	if err != nil {
		return false, err
	}
	a := naiveLock{client: s.Client(wire), key: s.Name(), owner: "A"}
	_, first := a.setNX(ctx, time.Minute)
	s.Mark("A", Plain, "SET NX: %v", first)
	ok, err := a.setNX(ctx, time.Minute)
	if err != nil {
		return false, err
	}
	s.Mark("A", Wrong, "sent again, granted: %v", ok)
	mine, err := a.mine(ctx)
	s.Note("the key is A's: %v", mine)
	return happened(lost) && first != nil && !ok && mine, err
}

func findsItsGrant(ctx context.Context, s *Stage) (bool, error) {
	addr, err := s.Redis(ctx)
	if err != nil {
		return false, err
	}
	wire, lost, err := s.loseOneReply(addr, mentions(s.Name()))
	if err != nil {
		return false, err
	}
	locker, err := s.Locker(wire, redislock.Config{}, lock.NoRenew(), lock.TTL(time.Minute))
	if err != nil {
		return false, err
	}
	lease, err := locker.TryAcquire(ctx, s.Name(), lock.Meta("A"))
	if err != nil {
		return false, err
	}
	s.Begin("A", Holds, "holds the lock, though the first reply was lost")
	return happened(lost), lease.Release()
}
