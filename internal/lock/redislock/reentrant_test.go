package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func newReentrant(t *testing.T, addr, prefix string) *redislock.Reentrant {
	t.Helper()
	b, err := redislock.NewReentrant(newClient(t, addr), redislock.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHolderMayEnterAgainAndOthersMayNot(t *testing.T) {
	t.Parallel()
	b := newReentrant(t, sandbox.RedisAddr(t), sandbox.Prefix(t))
	locker := newLocker(t, b, lock.TTL(5*time.Second))
	outer, err := locker.Acquire(t.Context(), "k", lock.As("worker-1"))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := locker.Acquire(t.Context(), "k", lock.As("worker-1"))
	if err != nil {
		t.Fatalf("enter again: %v", err)
	}
	for _, other := range []string{"worker-10", "worker-", ""} {
		if _, err := locker.TryAcquire(t.Context(), "k", lock.As(other)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%q entered: %v", other, err)
		}
	}
	held, err := locker.List(t.Context(), 10)
	if err != nil || len(held) != 1 || held[0].Reentered != 1 || held[0].Value != outer.Owner() {
		t.Errorf("list: %+v, %v", held, err)
	}
	for range 2 { // twice the same is once
		if err := outer.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if _, err := locker.TryAcquire(t.Context(), "k", lock.As("other")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("free while the inner grant is inside: %v", err)
	}
	if err := inner.Release(); err != nil {
		t.Errorf("release: %v", err)
	}
	free, err := locker.TryAcquire(t.Context(), "k", lock.As("other"))
	if err != nil {
		t.Fatalf("not free: %v", err)
	}
	if err := free.Release(); err != nil {
		t.Error(err)
	}
}

// Who may enter again does not queue behind those who wait for it to leave.
func TestHolderEntersPastWaiters(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, newReentrant(t, sandbox.RedisAddr(t), sandbox.Prefix(t)), lock.TTL(5*time.Second))
	outer, err := locker.Acquire(t.Context(), "k", lock.As("holder"))
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan *lock.Lease)
	go func() {
		lease, err := locker.Acquire(t.Context(), "k", lock.As("waiter"))
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		granted <- lease
	}()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if held, _ := locker.List(t.Context(), 1); len(held) == 1 && held[0].Waiting == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	inner, err := locker.Acquire(t.Context(), "k", lock.As("holder"), lock.Wait(patience))
	if err != nil {
		t.Fatalf("enter again: %v", err)
	}
	for _, lease := range []*lock.Lease{inner, outer} {
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}
	if lease := <-granted; lease != nil {
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}
}

// HINCRBY counts an enter that is sent again twice, and the key is never free.
func TestEnterSentAgainCountsOnce(t *testing.T) {
	t.Parallel()
	wire := newProxy(t, sandbox.RedisAddr(t))
	locker := newLocker(t, newReentrant(t, wire.Addr(), sandbox.Prefix(t)), lock.TTL(5*time.Second))
	outer, err := locker.Acquire(t.Context(), "k", lock.As("h"))
	if err != nil {
		t.Fatal(err)
	}
	fired := wire.OnRequest(func(r []byte) bool { return len(r) > 0 }, fault.LoseReply)
	inner, err := locker.Acquire(t.Context(), "k", lock.As("h"), lock.NoRenew())
	if err != nil {
		t.Fatalf("enter: %v", err)
	}
	select {
	case <-fired:
	case <-time.After(patience):
		t.Fatal("no reply was lost")
	}
	held, err := locker.List(t.Context(), 10)
	if err != nil || len(held) != 1 || held[0].Reentered != 1 {
		t.Errorf("list: %+v, %v", held, err)
	}
	for _, lease := range []*lock.Lease{inner, outer} {
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}
	if held, err := locker.List(t.Context(), 10); err != nil || len(held) != 0 {
		t.Errorf("still held: %+v, %v", held, err)
	}
}

// A grant that nobody renews is over, though others of the same holder go on.
func TestEveryGrantInsideHasItsOwnEnd(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, newReentrant(t, sandbox.RedisAddr(t), sandbox.Prefix(t)))
	outer, err := locker.Acquire(t.Context(), "k", lock.As("h"), lock.TTL(400*time.Millisecond), lock.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	inner, err := locker.Acquire(t.Context(), "k", lock.As("h"), lock.TTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	<-outer.Lost()
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the margin, and more: time has to pass
	if err := outer.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release of what was over: %v", err)
	}
	if err := inner.Err(); err != nil {
		t.Errorf("the inner grant ended with the outer: %v", err)
	}
	if err := inner.Release(); err != nil {
		t.Errorf("release: %v", err)
	}
	if held, err := locker.List(t.Context(), 10); err != nil || len(held) != 0 {
		t.Errorf("still held: %+v, %v", held, err)
	}
}

// All grants of a hold have the token of the outermost; the next hold has a greater one.
func TestHoldHasOneToken(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b := newReentrant(t, sandbox.RedisAddr(t), sandbox.Prefix(t))
	locker := lock.NewFenced(lock.WithTokens(b, pglock.NewTokens(pool)), lock.TTL(5*time.Second))
	defer closeLocker(t, locker.Close)
	var last lock.Token
	for range 3 {
		outer, err := locker.Acquire(t.Context(), "k", lock.As("h"))
		if err != nil {
			t.Fatal(err)
		}
		inner, err := locker.Acquire(t.Context(), "k", lock.As("h"))
		if err != nil {
			t.Fatal(err)
		}
		if outer.Fence() <= last || inner.Fence() != outer.Fence() {
			t.Errorf("tokens %d and %d after %d", outer.Fence(), inner.Fence(), last)
		}
		last = outer.Fence()
		for _, lease := range []*lock.Fenced{outer, inner} {
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		}
	}
}
