package fault_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestRealServer breaks one INCR in each way and looks at what Redis did.
func TestRealServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		action  fault.Action
		applied bool
	}{
		{"request lost", fault.LoseRequest, false},
		{"reply lost", fault.LoseReply, true},
		{"disconnected", fault.Disconnect, true},
		{"held", fault.HoldRequest, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addr := sandbox.RedisAddr(t)
			proxy := newProxy(t, addr)
			direct, broken := client(t, addr), client(t, proxy.Addr())
			key := sandbox.Prefix(t) + "counter"
			if err := broken.Get(t.Context(), key).Err(); !errors.Is(err, redis.Nil) {
				t.Fatalf("before anything is broken: %v", err)
			}
			fired := proxy.OnRequest(contains(key), c.action)
			short, cancel := context.WithTimeout(t.Context(), silence)
			defer cancel()
			if err := broken.Incr(short, key).Err(); err == nil {
				t.Fatal("the client was told of success over a broken wire")
			}
			happens(t, "the failure", fired)
			proxy.Restore()
			if c.applied {
				waitFor(t, direct, key, "1")
			}
			// A lost request cannot be waited for: its connection is gone, and a later command would pass it.
			if got := direct.Exists(t.Context(), key).Val(); (got == 1) != c.applied {
				t.Fatalf("applied: %v, want %v", got == 1, c.applied)
			}
			if err := broken.Incr(t.Context(), key).Err(); err != nil {
				t.Fatalf("after Restore: %v", err)
			}
		})
	}
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// waitFor polls until the key has the value.
func waitFor(t *testing.T, c *redis.Client, key, value string) {
	t.Helper()
	for deadline := time.Now().Add(patience); c.Get(t.Context(), key).Val() != value; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s never became %s", key, value)
		}
	}
}
