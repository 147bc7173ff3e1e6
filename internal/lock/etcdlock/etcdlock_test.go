package etcdlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/etcdlock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

func newClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Whatever was lost on the way, neither a key that waits for ever nor a lease stays behind.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnEtcd(t)
	observer := newClient(t, server.Addr())
	wire, err := fault.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	locker := lock.NewFenced(etcdlock.New(newClient(t, wire.Addr()), ""), lock.TTL(time.Minute))
	other := lock.NewFenced(etcdlock.New(observer, ""), lock.TTL(time.Minute))
	for _, action := range []fault.Action{fault.LoseRequest, fault.LoseReply, fault.Disconnect} {
		for _, held := range []bool{false, true} {
			var holder *lock.Fenced
			if held { // then what the lost request leaves is a waiter
				if holder, err = other.Acquire(t.Context(), "k", lock.Wait(20*time.Second)); err != nil { // less than an orphan waits
					t.Fatal(err)
				}
			}
			warm, err := locker.Acquire(t.Context(), "warm") // else what is lost is the greeting of a connection
			if err != nil {
				t.Fatal(err)
			}
			if err := warm.Release(); err != nil {
				t.Fatal(err)
			}
			fired := wire.OnRequest(func(r []byte) bool { return bytes.Contains(r, []byte(etcdlock.DefaultPrefix+"k/")) }, action)
			lease, err := locker.Acquire(t.Context(), "k", lock.Wait(300*time.Millisecond))
			if err == nil {
				if err := lease.Release(); err != nil {
					t.Errorf("release: %v", err)
				}
			}
			select {
			case <-fired:
			case <-time.After(30 * time.Second):
				t.Fatal("nothing was lost")
			}
			wire.Restore()
			if holder != nil {
				if err := holder.Release(); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		}
	}
	for _, l := range []*lock.Locker[*lock.Fenced]{locker, other} {
		if err := l.Close(t.Context()); err != nil { // waits until unclear claims are given up
			t.Error(err)
		}
	}
	keys, err := observer.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		t.Errorf("left behind: %s = %s", kv.Key, kv.Value)
	}
	leases, err := observer.Leases(t.Context())
	if err != nil || len(leases.Leases) != 0 {
		t.Errorf("left behind: leases %v, %v", leases, err)
	}
}

// A waiter that gives up leaves no watch on the server.
func TestWaiterLeavesNoWatch(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnEtcd(t)
	locker := lock.NewFenced(etcdlock.New(newClient(t, server.Addr()), ""), lock.TTL(time.Minute))
	defer func() { _ = locker.Close(context.Background()) }()
	lease, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const waiters = 5
	failed := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := locker.Acquire(ctx, "k")
			failed <- err
		}()
	}
	watches(t, server, waiters)
	cancel()
	for range waiters {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	watches(t, server, 0)
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// watches returns when the server has so many.
func watches(t *testing.T, server *sandbox.Etcd, want int) {
	t.Helper()
	line := fmt.Sprintf("\netcd_debugging_mvcc_watcher_total %d\n", want)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		response, err := http.Get(server.URL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), line) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the server never had %d watches", want)
		}
	}
}

// An operator removes the key of a holder: the next renewal says so, though the etcd lease goes on.
func TestRemovedKeyIsNoticed(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnEtcd(t)
	client := newClient(t, server.Addr())
	locker := lock.NewFenced(etcdlock.New(client, ""), lock.TTL(3*time.Second))
	defer func() { _ = locker.Close(context.Background()) }()
	lease, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), etcdlock.DefaultPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Lost():
	case <-time.After(30 * time.Second):
		t.Error("not noticed")
	}
	_ = lease.Release()
}
