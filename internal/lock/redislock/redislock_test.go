package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestClientsThatWouldActBehindOurBackAreRefused(t *testing.T) {
	t.Parallel()
	addr := sandbox.RedisAddr(t)
	for name, options := range map[string]*redis.Options{
		"retries":      {Addr: addr, ContextTimeoutEnabled: true},
		"no deadlines": {Addr: addr, MaxRetries: -1},
	} {
		client := redis.NewClient(options)
		defer client.Close()
		if _, err := redislock.New(client, redislock.Config{}); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := redislock.NewRedlock([]*redis.Client{client, client, client}, redislock.RedlockConfig{}); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s, redlock: %v", name, err)
		}
	}
	if _, err := redislock.New(newClient(t, addr), redislock.Config{Prefix: "a{b"}); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("prefix: %v", err)
	}
}

// Comparing a prefix takes the lock of worker-10 for that of worker-1.
func TestOwnerIsComparedWhole(t *testing.T) {
	t.Parallel()
	b := newBackend(t, newClient(t, sandbox.RedisAddr(t)), redislock.Config{Prefix: sandbox.Prefix(t)})
	defer b.Close()
	longer, shorter := claim("k", "G", "worker-10"), claim("k", "G", "worker-1")
	if !strings.HasPrefix(longer.Value, shorter.Value) {
		t.Fatalf("%q does not begin with %q", longer.Value, shorter.Value)
	}
	held, err := b.Acquire(t.Context(), longer)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := b.Acquire(t.Context(), shorter); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("acquire: %v, %v", g, err)
	}
	if _, err := b.Renew(t.Context(), lock.Grant{Claim: shorter}); !errors.Is(err, lock.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := b.Release(t.Context(), lock.Grant{Claim: shorter}); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v", err)
	}
	if err := b.Release(t.Context(), held); err != nil {
		t.Errorf("release of the owner: %v", err)
	}
}

// What is left of a claim that was given up ends by itself.
func TestMarksOfGivenUpClaimsExpire(t *testing.T) {
	t.Parallel()
	client, prefix := newClient(t, sandbox.RedisAddr(t)), sandbox.Prefix(t)
	b := newBackend(t, client, redislock.Config{Prefix: prefix})
	defer b.Close()
	c := claim("k", "G", "")
	if err := b.Abandon(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if g, err := b.Acquire(t.Context(), c); err == nil {
		t.Errorf("a claim that was given up was granted: %+v", g)
	}
	keys, err := client.Keys(t.Context(), prefix+"*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys: %v, %v", keys, err)
	}
	if ttl := client.PTTL(t.Context(), keys[0]).Val(); ttl <= 0 || ttl > c.TTL {
		t.Errorf("%s lives for %s", keys[0], ttl)
	}
	held, err := b.List(t.Context(), 10)
	if err != nil || len(held) != 0 {
		t.Errorf("list: %v, %v", held, err)
	}
}

func TestListUsesScanAndSkipsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	client := newClient(t, server.Addr())
	b := newBackend(t, client, redislock.Config{})
	defer b.Close()
	const n = 3000 // more than one SCAN returns
	pipe := client.Pipeline()
	for i := range n {
		pipe.Set(t.Context(), fmt.Sprintf("lock:{k%d}", i), claim("", "G", "").Value, time.Hour)
		pipe.Set(t.Context(), fmt.Sprintf("other:{k%d}", i), "x", 0)
	}
	pipe.Set(t.Context(), "lock:{forever}", "x", 0)
	pipe.HSet(t.Context(), "lock:{hash}", "f", "v")
	pipe.Set(t.Context(), "lock:{%zz}", "x", time.Hour)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	held, err := b.List(t.Context(), 2*n)
	if err != nil || len(held) != n {
		t.Errorf("%d held, %v; want %d", len(held), err, n)
	}
	if held, err = b.List(t.Context(), 7); err != nil || len(held) != 7 {
		t.Errorf("%d held, %v; want 7", len(held), err)
	}
	stats := client.Info(t.Context(), "commandstats").Val()
	if strings.Contains(stats, "cmdstat_keys:") || !strings.Contains(stats, "cmdstat_scan:") {
		t.Errorf("commands used: %s", stats)
	}
	// A key without an end is somebody else's; it is held, not stolen.
	if _, err := b.Acquire(t.Context(), claim("forever", "G", "")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("acquire of a foreign key: %v", err)
	}
	if _, err := b.Acquire(t.Context(), claim("hash", "G", "")); err == nil || errors.Is(err, lock.ErrUnknownOutcome) {
		t.Errorf("acquire of a key of another type: %v", err)
	}
}

// A waiter holds one connection more, for all keys, until the locker is closed.
func TestWaitersShareAConnectionThatEndsWithTheLocker(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	observer := newClient(t, server.Addr())
	client := newClient(t, server.Addr())
	locker := lock.New(newBackend(t, client, redislock.Config{}))
	subscribers := func() int { return strings.Count(observer.ClientList(t.Context()).Val(), "cmd=subscribe") }
	const n = 20
	granted := make(chan *lock.Lease, n)
	var leases []*lock.Lease
	for i := range n {
		lease, err := locker.Acquire(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
		go func() {
			next, err := locker.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			granted <- next
		}()
	}
	for end := time.Now().Add(patience); len(observer.PubSubChannels(t.Context(), "*").Val()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the waiters do not listen")
		}
	}
	if s := subscribers(); s != 1 {
		t.Errorf("%d connections listen, want 1", s)
	}
	for _, lease := range leases {
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}
	for range n {
		if next := <-granted; next != nil {
			if err := next.Release(); err != nil {
				t.Error(err)
			}
		}
	}
	closeLocker(t, locker.Close)
	// One that has unsubscribed from everything is told from the clients' own by there being one more.
	left := func() int {
		return strings.Count(observer.ClientList(t.Context()).Val(), "\n") - int(client.PoolStats().TotalConns+observer.PoolStats().TotalConns)
	}
	for end := time.Now().Add(patience); left() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections more than the clients have", left())
		}
	}
}

// However many locks were taken, and whatever became of their requests: all connections go back to the client.
func TestNoConnectionIsKeptFromTheClient(t *testing.T) {
	t.Parallel()
	wire := newProxy(t, sandbox.RedisAddr(t))
	client := newClient(t, wire.Addr())
	locker := lock.New(newBackend(t, client, redislock.Config{Prefix: sandbox.Prefix(t)}), lock.TTL(10*time.Second))
	var workers sync.WaitGroup
	for worker := range 32 {
		workers.Go(func() {
			for i := range 20 {
				if worker == 0 && i%5 == 4 {
					wire.OnRequest(func([]byte) bool { return true }, fault.Disconnect)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				lease, err := locker.Acquire(ctx, fmt.Sprint(worker%8))
				if i%3 == 0 {
					cancel()
				}
				if err == nil {
					_ = lease.Release() // or by whoever gives it up
				}
				cancel()
			}
		})
	}
	workers.Wait()
	closeLocker(t, locker.Close)
	if s := client.PoolStats(); s.TotalConns == 0 || s.TotalConns != s.IdleConns {
		t.Errorf("%d connections, %d of them idle", s.TotalConns, s.IdleConns)
	}
}

// The replica is cut off: what is granted is not confirmed, so it is not granted.
func TestUnconfirmedGrantIsTakenBack(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	link := newProxy(t, primary.Addr())
	replica, err := sandbox.StartRedisReplica(t.Context(), link.Addr(), sandbox.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = replica.Stop(context.Background()) })
	client := newClient(t, primary.Addr())
	confirmed := newLocker(t, newBackend(t, client, redislock.Config{Confirm: 1}), lock.TTL(5*time.Second))
	lease, err := confirmed.TryAcquire(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}

	link.Swallow()
	if lease, err := confirmed.TryAcquire(t.Context(), "after"); err == nil {
		t.Errorf("granted %s, which a failover would forget", lease.Owner())
	}
	if n := client.Exists(t.Context(), "lock:{after}").Val(); n != 0 {
		t.Error("the grant that was refused still holds the key")
	}
	select { // nor can it be renewed
	case <-lease.Lost():
	case <-time.After(patience):
		t.Error("a lease was renewed that a failover would forget")
	}
	if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v", err)
	}
}

// What a failover does to a lease is what the properties say.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, confirm := range map[string]int{"forgets": 0, "keeps what was confirmed": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := sandbox.OwnRedis(t, sandbox.RedisConfig{})
			link := newProxy(t, primary.Addr())
			replica, err := sandbox.StartRedisReplica(t.Context(), link.Addr(), sandbox.RedisConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = replica.Stop(context.Background()) })
			config := redislock.Config{Confirm: confirm}
			old := newBackend(t, newClient(t, primary.Addr()), config)
			if confirm == 0 {
				link.Swallow() // replication lags, as it may
			}
			before := newLocker(t, old, lock.TTL(20*time.Second))
			lease, err := before.TryAcquire(t.Context(), "k", lock.NoRenew())
			if err != nil {
				t.Fatal(err)
			}
			if err := replica.Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			after := newLocker(t, newBackend(t, newClient(t, replica.Addr()), redislock.Config{}))
			second, err := after.TryAcquire(t.Context(), "k")
			failover := old.Properties().Failover
			if two := err == nil; two != (failover == lock.MayForget) {
				t.Errorf("%q, but the new primary says %v", failover, err)
			}
			if second != nil {
				_ = second.Release()
			}
			if lease.Err() != nil {
				t.Errorf("the old holder noticed, which it could not: %v", lease.Err())
			}
			_ = lease.Release()
		})
	}
}
