package lock_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// patience bounds every wait of a test for what must happen.
const patience = 30 * time.Second

// system is a back end and how to run it: what the suite runs over.
type system struct {
	name  string
	start func(t *testing.T) *world
}

// systems lists every back end. A new one is added here and nowhere else.
var systems = []system{
	{"redis", startRedis},
	{"redis+token", startRedisWithTokens},
	{"postgres", startPostgres},
	{"postgres-advisory", startAdvisory},
}

// world is running servers of one back end, and how a process gets to them.
type world struct {
	open    func(t *testing.T, addrs []string) lock.Backend // a client of its own, as another process would have
	addrs   []string
	restart func(t *testing.T) // in order, of all servers; nil where a test has no servers of its own
	own     func(t *testing.T) *world
}

// forEach runs a test on every back end.
func forEach(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s.start(t))
		})
	}
}

// party is one process that takes part.
type party struct {
	backend lock.Backend
	acquire func(ctx context.Context, key string, options ...lock.Option) (*lock.Lease, error)
	try     func(ctx context.Context, key string, options ...lock.Option) (*lock.Lease, error)
	do      func(ctx context.Context, key string, work func(context.Context) error, options ...lock.Option) error
	token   func(*lock.Lease) lock.Token
	list    func(ctx context.Context, limit int) ([]lock.Held, error)
	close   func(ctx context.Context) error
	ttl     time.Duration // the shortest that leaves a test time to see something
}

// join lets a process take part over healthy wires.
func (w *world) join(t *testing.T, defaults ...lock.Option) *party {
	t.Helper()
	return enter(t, w.open(t, w.addrs), defaults)
}

// joinOver lets a process take part over a wire that can be broken.
func (w *world) joinOver(t *testing.T, defaults ...lock.Option) (*party, wire) {
	t.Helper()
	var broken wire
	addrs := make([]string, len(w.addrs))
	for i, addr := range w.addrs {
		proxy, err := fault.NewProxy(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		})
		broken, addrs[i] = append(broken, proxy), proxy.Addr()
	}
	return enter(t, w.open(t, addrs), defaults), broken
}

func enter(t *testing.T, backend lock.Backend, defaults []lock.Option) *party {
	t.Helper()
	p := &party{backend: backend, ttl: max(400*time.Millisecond, backend.Properties().MinTTL)}
	defaults = append([]lock.Option{lock.TTL(p.ttl)}, defaults...)
	if fenced, ok := backend.(lock.FencedBackend); ok {
		p.attend(lock.NewFenced(fenced, defaults...))
	} else {
		attendBare(p, lock.New(backend, defaults...))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.close(ctx); err != nil {
			t.Errorf("close the locker: %v", err)
		}
	})
	return p
}

func (p *party) attend(l *lock.Locker[*lock.Fenced]) {
	attendAs(p, l, func(f *lock.Fenced) *lock.Lease { return f.Lease })
}

func attendBare(p *party, l *lock.Locker[*lock.Lease]) {
	attendAs(p, l, func(l *lock.Lease) *lock.Lease { return l })
}

func attendAs[L lock.Granted](p *party, l *lock.Locker[L], bare func(L) *lock.Lease) {
	var tokens tokenBook
	p.token = tokens.of
	granted := func(lease L, err error) (*lock.Lease, error) {
		if err != nil {
			return nil, err
		}
		if fenced, ok := any(lease).(*lock.Fenced); ok {
			tokens.note(fenced)
		}
		return bare(lease), nil
	}
	p.acquire = func(ctx context.Context, key string, options ...lock.Option) (*lock.Lease, error) {
		return granted(l.Acquire(ctx, key, options...))
	}
	p.try = func(ctx context.Context, key string, options ...lock.Option) (*lock.Lease, error) {
		return granted(l.TryAcquire(ctx, key, options...))
	}
	p.do = func(ctx context.Context, key string, work func(context.Context) error, options ...lock.Option) error {
		return l.Do(ctx, key, func(ctx context.Context, _ L) error { return work(ctx) }, options...)
	}
	p.list, p.close = l.List, l.Close
}

// wire is the connections of one process to all servers of a back end.
type wire []*fault.Proxy

func (w wire) swallow() {
	for _, p := range w {
		p.Swallow()
	}
}

func (w wire) cut() {
	for _, p := range w {
		p.Cut()
	}
}

func (w wire) restore() {
	for _, p := range w {
		p.Restore()
	}
}

// at does the action at the next request on each wire that contains the text.
func (w wire) at(text string, action fault.Action) []<-chan struct{} {
	fired := make([]<-chan struct{}, len(w))
	for i, p := range w {
		fired[i] = p.OnRequest(func(request []byte) bool { return strings.Contains(string(request), text) }, action)
	}
	return fired
}

var keys atomic.Int64

// newKey is a key nobody else uses, with characters that names of keys, files and nodes are delicate about.
func newKey() string { return fmt.Sprintf("stock/ünit %d{x}%%2F..", keys.Add(1)) }

func startRedis(t *testing.T) *world {
	prefix := sandbox.Prefix(t)
	return redisWorld([]string{sandbox.RedisAddr(t)}, prefix, redislock.Config{})
}

func redisWorld(addrs []string, prefix string, config redislock.Config) *world {
	config.Prefix = prefix
	return &world{addrs: addrs, open: func(t *testing.T, addrs []string) lock.Backend {
		t.Helper()
		backend, err := redislock.New(redisClient(t, addrs[0]), config)
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}, own: func(t *testing.T) *world {
		server := sandbox.OwnRedis(t, sandbox.RedisConfig{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}})
		w := redisWorld([]string{server.Addr()}, prefix, config)
		w.restart = func(t *testing.T) {
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}}
}

func redisClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, PoolTimeout: time.Second,
	})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// startRedisWithTokens is the default of a deployment: a Redis lease with tokens from Postgres.
func startRedisWithTokens(t *testing.T) *world {
	w := startRedis(t)
	pool := lockPool(t, sandbox.EmptyDatabase(t))
	bare := w.open
	w.open = func(t *testing.T, addrs []string) lock.Backend {
		return lock.WithTokens(bare(t, addrs), pglock.NewTokens(pool))
	}
	return w
}

func startPostgres(t *testing.T) *world {
	return postgresWorld(t, sandbox.EmptyDatabase(t), func(_ *testing.T, pool *pgxpool.Pool) lock.Backend {
		return pglock.New(pool)
	})
}

func startAdvisory(t *testing.T) *world {
	return postgresWorld(t, sandbox.EmptyDatabase(t), func(t *testing.T, pool *pgxpool.Pool) lock.Backend {
		backend, err := pglock.NewAdvisory(t.Context(), pool, 8)
		if err != nil {
			t.Fatal(err)
		}
		return backend
	})
}

func postgresWorld(t *testing.T, database string, open func(*testing.T, *pgxpool.Pool) lock.Backend) *world {
	t.Helper()
	lockPool(t, database)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return &world{addrs: []string{u.Host}, open: func(t *testing.T, addrs []string) lock.Backend {
		t.Helper()
		at := *u
		at.Host = addrs[0]
		return open(t, newPool(t, at.String()))
	}}
}

// lockPool is a pool on a database that has the lock tables.
func lockPool(t *testing.T, database string) *pgxpool.Pool {
	t.Helper()
	pool := newPool(t, database)
	if err := pglock.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func newPool(t testing.TB, database string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	config.ConnConfig.ConnectTimeout = time.Second
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
