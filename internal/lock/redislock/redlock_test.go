package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// nodeLimit is far more than a server that is well takes on a busy machine, and far less than the read timeout of our
// clients, which they would wait for if deadlines did not reach their sockets.
const nodeLimit = 500 * time.Millisecond

// startRedlock runs servers, each behind a wire that can be broken.
func startRedlock(t *testing.T, n int) (*redislock.Redlock, sandbox.RedisGroup, []*fault.Proxy) {
	t.Helper()
	group, err := sandbox.StartRedisMasters(t.Context(), n, sandbox.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Stop(context.Background()) })
	var wires []*fault.Proxy
	var clients []*redis.Client
	for _, server := range group {
		wire := newProxy(t, server.Addr())
		wires, clients = append(wires, wire), append(clients, newClient(t, wire.Addr()))
	}
	b, err := redislock.NewRedlock(clients, redislock.RedlockConfig{NodeLimit: nodeLimit})
	if err != nil {
		t.Fatal(err)
	}
	return b, group, wires
}

// A client that keeps deadlines from its sockets would wait for its read timeout.
func TestServersThatDoNotAnswerCostTheirLimit(t *testing.T) {
	t.Parallel()
	b, _, wires := startRedlock(t, 5)
	locker := newLocker(t, b, lock.TTL(5*time.Second))
	warm, err := locker.TryAcquire(t.Context(), "warm")
	if err != nil {
		t.Fatal(err)
	}
	if err := warm.Release(); err != nil {
		t.Fatal(err)
	}
	wires[0].Swallow()
	wires[1].Swallow()
	started := time.Now()
	lease, err := locker.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatalf("without a minority: %v", err)
	}
	if took := time.Since(started); took < nodeLimit || took >= readTimeout {
		t.Errorf("acquire took %s, want about %s", took, nodeLimit)
	}
	started = time.Now()
	if err := lease.Release(); err != nil {
		t.Errorf("release: %v", err)
	}
	if took := time.Since(started); took >= readTimeout {
		t.Errorf("release took %s, want about %s", took, nodeLimit)
	}
}

func TestNoMajorityIsNoLock(t *testing.T) {
	t.Parallel()
	b, group, wires := startRedlock(t, 3)
	locker := newLocker(t, b, lock.TTL(2*time.Second))
	wires[0].Cut()
	wires[1].Cut()
	if lease, err := locker.TryAcquire(t.Context(), "k"); err == nil {
		t.Errorf("granted by a minority: %s", lease.Owner())
	}
	wires[0].Restore()
	wires[1].Restore()
	for i, server := range group { // and nothing stays on the minority
		if n := newClient(t, server.Addr()).Exists(t.Context(), "lock:{k}").Val(); n != 0 {
			t.Errorf("server %d still has the key", i)
		}
	}
	lease, err := locker.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatalf("healed: %v", err)
	}
	// A server that forgets in the middle of a lease is not told again by a renewal.
	newClient(t, group[0].Addr()).FlushAll(t.Context())
	before := lease.Deadline()
	for end := time.Now().Add(patience); lease.Deadline().Equal(before); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never renewed")
		}
	}
	if n := newClient(t, group[0].Addr()).Exists(t.Context(), "lock:{k}").Val(); n != 0 {
		t.Error("a renewal created the key")
	}
	newClient(t, group[1].Addr()).FlushAll(t.Context())
	select {
	case <-lease.Lost():
	case <-time.After(patience):
		t.Error("a lease is held by a minority")
	}
	if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v", err)
	}
}

// Servers so slow that the lease is over when the majority has answered: refused, and freed everywhere.
func TestSlowMajorityIsRefused(t *testing.T) {
	t.Parallel()
	group, err := sandbox.StartRedisMasters(t.Context(), 3, sandbox.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Stop(context.Background()) })
	var clients []*redis.Client
	for _, server := range group {
		wire := newProxy(t, server.Addr())
		wire.DelayReplies(60 * time.Millisecond)
		clients = append(clients, newClient(t, wire.Addr()))
	}
	b, err := redislock.NewRedlock(clients, redislock.RedlockConfig{NodeLimit: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newLocker(t, b).TryAcquire(t.Context(), "k", lock.TTL(time.Second)); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a TTL that asking could use up: %v", err)
	}
	slow := claim("k", "G", "") // past the check that the locker makes
	slow.TTL = 60 * time.Millisecond
	if g, err := b.Acquire(t.Context(), slow); err == nil {
		t.Errorf("granted after its end: %+v", g)
	}
	for i, server := range group {
		if n := newClient(t, server.Addr()).Exists(t.Context(), "lock:{k}").Val(); n != 0 {
			t.Errorf("server %d still has the key", i)
		}
	}
}

func TestRedlockNeedsAnOddNumberOfServers(t *testing.T) {
	t.Parallel()
	c := newClient(t, sandbox.RedisAddr(t))
	for _, n := range []int{0, 1, 2, 4} {
		clients := make([]*redis.Client, n)
		for i := range clients {
			clients[i] = c
		}
		if _, err := redislock.NewRedlock(clients, redislock.RedlockConfig{}); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%d servers: %v", n, err)
		}
	}
}
