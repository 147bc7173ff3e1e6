package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/zklock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

func newLocker(t *testing.T, addr string, session time.Duration) *lock.Locker[*lock.Fenced] {
	t.Helper()
	backend, err := zklock.New([]string{addr}, zklock.Config{Session: session})
	if err != nil {
		t.Fatal(err)
	}
	locker := lock.NewFenced(backend, lock.TTL(session))
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locker
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnZooKeeper(t)
	t.Run("no connection is left", func(t *testing.T) {
		noConnectionIsLeft(t, server)
	})
	t.Run("tokens grow when the parent is removed", func(t *testing.T) {
		t.Parallel()
		tokensGrowWhenTheParentIsRemoved(t, server)
	})
	t.Run("lease is as long as the server lets the session be", func(t *testing.T) {
		t.Parallel()
		leaseIsAsLongAsTheServerLetsTheSessionBe(t, server)
	})
}

// Whatever became of its leases and waiters, a locker that is closed leaves no connection.
func noConnectionIsLeft(t *testing.T, server *sandbox.ZooKeeper) {
	const none = 1 // but the one that asks
	connected(t, server, none)
	for range 5 {
		backend, err := zklock.New([]string{server.Addr()}, zklock.Config{Session: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		locker := lock.NewFenced(backend, lock.TTL(2*time.Second))
		lease, err := locker.Acquire(t.Context(), "left")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Acquire(t.Context(), "left", lock.Wait(20*time.Millisecond)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("wait for a held key: %v", err)
		}
		connected(t, server, none+1)
		if err := locker.Close(t.Context()); err != nil { // the lease is still held
			t.Error(err)
		}
		_ = lease.Release() // its session has ended
		connected(t, server, none)
	}
}

// connected returns when the server has so many connections.
func connected(t *testing.T, server *sandbox.ZooKeeper, want int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); connections(t, server) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections, want %d", connections(t, server), want)
		}
	}
}

// connections that the server counts, the one that asks among them.
func connections(t *testing.T, server *sandbox.ZooKeeper) (n int) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "Connections: %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no count in %q", text)
	return 0
}

// The sequence numbers of nodes begin anew then.
func tokensGrowWhenTheParentIsRemoved(t *testing.T, server *sandbox.ZooKeeper) {
	locker := newLocker(t, server.Addr(), 2*time.Second)
	conn, _, err := zk.Connect([]string{server.Addr()}, time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var last lock.Token
	for round := range 3 {
		lease, err := locker.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if lease.Fence() <= last {
			t.Errorf("token %d after %d", lease.Fence(), last)
		}
		last = lease.Fence()
		names, _, err := conn.Children(zklock.DefaultRoot + "/k")
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		if number := names[0][len(names[0])-10:]; number != "0000000000" {
			t.Errorf("round %d: sequence number %s; the parent was not removed", round, number)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if err := conn.Delete(zklock.DefaultRoot+"/k", -1); err != nil {
			t.Fatal(err)
		}
	}
}

// The server gives at most 20 ticks, here 4 s, to who asks for a minute: the lease must not last longer.
func leaseIsAsLongAsTheServerLetsTheSessionBe(t *testing.T, server *sandbox.ZooKeeper) {
	locker := newLocker(t, server.Addr(), time.Minute)
	if _, err := locker.TryAcquire(t.Context(), "long", lock.TTL(time.Second)); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a TTL shorter than the session: %v", err)
	}
	started := time.Now()
	lease, err := locker.Acquire(t.Context(), "long")
	if err != nil {
		t.Fatal(err)
	}
	if lasts := lease.Deadline().Sub(started); lasts > 4*time.Second {
		t.Errorf("the lease lasts %s", lasts)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}
