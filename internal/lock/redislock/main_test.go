package redislock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

const (
	patience    = 30 * time.Second
	readTimeout = 10 * time.Second
)

func newClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: readTimeout,
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newProxy(t *testing.T, target string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newLocker(t *testing.T, backend lock.Backend, options ...lock.Option) *lock.Locker[*lock.Lease] {
	t.Helper()
	l := lock.New(backend, options...)
	t.Cleanup(func() { closeLocker(t, l.Close) })
	return l
}

func closeLocker(t *testing.T, closing func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := closing(ctx); err != nil {
		t.Error(err)
	}
}

func newBackend(t *testing.T, client redis.UniversalClient, c redislock.Config) *redislock.Backend {
	t.Helper()
	b, err := redislock.New(client, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// claim is one of a grant that the test names.
func claim(key, grant, meta string) lock.Claim {
	owner := lock.Owner{Host: "h", PID: 1, Grant: grant, Time: time.Unix(0, 0), Meta: meta}
	return lock.Claim{Key: key, Owner: owner, Value: owner.String(), TTL: 10 * time.Second, Pause: lock.Backoff{Min: time.Millisecond, Max: time.Second}}
}
