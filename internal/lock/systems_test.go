package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-stock/holdfast/db"
	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/etcdlock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/lock/zklock"
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
	{"redis+wait", startConfirmed},
	{"redis-cluster", startCluster},
	{"redis-reentrant", startReentrant},
	{"redlock", startRedlock},
	{"etcd", startEtcd},
	{"zookeeper", startZooKeeper},
}

// world is running servers of one back end, and how a process gets to them.
type world struct {
	open    func(t *testing.T, addrs []string, ttl time.Duration) lock.Backend // a client of its own, as another process would have
	addrs   []string
	restart func(t *testing.T) // in order, of all servers; nil where a test has no servers of its own
	own     func(t *testing.T) *world

	wireless bool          // its clients cannot be led over a wire of ours
	opaque   bool          // its requests to release show neither key nor grant
	longest  time.Duration // lease there is; 0: any
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
	ttl     time.Duration
}

// join lets a process take part over healthy wires, with leases that last.
func (w *world) join(t *testing.T) *party { return w.joinFor(t, endless) }

// joinFor lets a process take part with leases of a TTL, or the shortest that the back end has.
func (w *world) joinFor(t *testing.T, ttl time.Duration) *party {
	t.Helper()
	return enter(t, w.open(t, w.addrs, ttl), ttl)
}

// joinOver lets a process take part over a wire that can be broken.
func (w *world) joinOver(t *testing.T, ttl time.Duration) (*party, wire) {
	t.Helper()
	if w.wireless {
		t.Skip("its clients find the servers themselves, past any wire of ours")
	}
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
	return enter(t, w.open(t, addrs, ttl), ttl), broken
}

// brief is a TTL whose end a test waits for; endless one that is not over before the test is.
const (
	brief   = time.Second
	endless = 30 * time.Second
)

func enter(t *testing.T, backend lock.Backend, ttl time.Duration) *party {
	t.Helper()
	p := &party{backend: backend, ttl: max(ttl, backend.Properties().MinTTL)}
	defaults := lock.TTL(p.ttl)
	if fenced, ok := backend.(lock.FencedBackend); ok {
		p.attend(lock.NewFenced(fenced, defaults))
	} else {
		attendBare(p, lock.New(backend, defaults))
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
		return insist(ctx, func() (*lock.Lease, error) { return granted(l.TryAcquire(ctx, key, options...)) })
	}
	p.do = func(ctx context.Context, key string, work func(context.Context) error, options ...lock.Option) error {
		return l.Do(ctx, key, func(ctx context.Context, _ L) error { return work(ctx) }, options...)
	}
	p.list, p.close = l.List, l.Close
}

// insist tries again while no answer comes. An acquire gives up after a few seconds, which a busy machine may take, and
// which is no test's subject but those that call party.acquire.
func insist(ctx context.Context, acquire func() (*lock.Lease, error)) (*lock.Lease, error) {
	for end := time.Now().Add(patience); ; {
		lease, err := acquire()
		answered := err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrClosed)
		if answered || ctx.Err() != nil || time.Now().After(end) {
			return lease, err
		}
	}
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

// when does the action at the next request on each wire that matches.
func (w wire) when(match func(request string) bool, action fault.Action) []<-chan struct{} {
	fired := make([]<-chan struct{}, len(w))
	for i, p := range w {
		fired[i] = p.OnRequest(func(request []byte) bool { return match(string(request)) }, action)
	}
	return fired
}

// at does the action at the next request on each wire that contains the text.
func (w wire) at(text string, action fault.Action) []<-chan struct{} {
	return w.when(func(request string) bool { return strings.Contains(request, text) }, action)
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
	return &world{addrs: addrs, open: func(t *testing.T, addrs []string, _ time.Duration) lock.Backend {
		t.Helper()
		backend, err := redislock.New(redisClient(t, addrs[0]), config)
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}, own: func(t *testing.T) *world {
		server := sandbox.OwnRedis(t, durable)
		return redisWorld([]string{server.Addr()}, prefix, config).restartedBy(server)
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

type restarter interface {
	Restart(ctx context.Context) error
}

// restartedBy makes the world's servers restart.
func (w *world) restartedBy(servers ...restarter) *world {
	w.restart = func(t *testing.T) {
		t.Helper()
		for _, server := range servers {
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// startRedisWithTokens is the default of a deployment: a Redis lease with tokens from Postgres.
func startRedisWithTokens(t *testing.T) *world {
	w := startRedis(t)
	pool := newPool(t, database(t))
	bare := w.open
	w.own = nil // as without tokens
	w.open = func(t *testing.T, addrs []string, ttl time.Duration) lock.Backend {
		return lock.WithTokens(bare(t, addrs, ttl), pglock.NewTokens(pool))
	}
	return w
}

// database is the one that all tests of this binary share: their keys differ, and a clone for each would cost more than
// what they do there.
func database(t *testing.T) string {
	return servers.postgres.get(t, func(ctx context.Context) (string, func(context.Context) error, error) {
		server, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{})
		if err != nil {
			return "", nil, err
		}
		url := server.URL("postgres")
		if err := db.Migrate(ctx, url); err != nil {
			return "", nil, errors.Join(err, server.Stop(ctx))
		}
		return url, server.Stop, nil
	})
}

func startPostgres(t *testing.T) *world {
	return postgresWorld(t, database(t), openLease)
}

func openLease(_ *testing.T, pool *pgxpool.Pool) lock.Backend { return pglock.New(pool) }

func startAdvisory(t *testing.T) *world {
	return postgresWorld(t, database(t), openAdvisory)
}

func openAdvisory(t *testing.T, pool *pgxpool.Pool) lock.Backend {
	t.Helper()
	backend, err := pglock.NewAdvisory(t.Context(), pool, 26)
	if err != nil {
		t.Fatal(err)
	}
	return backend
}

func postgresWorld(t *testing.T, database string, open func(*testing.T, *pgxpool.Pool) lock.Backend) *world {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return &world{addrs: []string{u.Host}, open: func(t *testing.T, addrs []string, _ time.Duration) lock.Backend {
		t.Helper()
		at := *u
		at.Host = addrs[0]
		return open(t, newPool(t, at.String()))
	}, own: func(t *testing.T) *world {
		server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
		database := server.URL("postgres")
		if err := db.Migrate(t.Context(), database); err != nil {
			t.Fatal(err)
		}
		return postgresWorld(t, database, open).restartedBy(server)
	}}
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

// servers are those that all tests of this binary share, besides what the sandbox shares itself: each takes long to
// start or much memory.
var servers struct {
	replicated, cluster, masters once[[]string]
	postgres, etcd, zookeeper    once[string]
	stop                         []func(context.Context) error
	mu                           sync.Mutex // guards stop
}

// once starts something on first use.
type once[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (o *once[T]) get(t *testing.T, start func(ctx context.Context) (T, func(context.Context) error, error)) T {
	t.Helper()
	o.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		var stop func(context.Context) error
		if o.value, stop, o.err = start(ctx); o.err == nil {
			servers.mu.Lock()
			defer servers.mu.Unlock()
			servers.stop = append(servers.stop, stop)
		}
	})
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.value
}

// stopServers ends the servers that get started.
func stopServers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, stop := range servers.stop {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// startConfirmed is a primary whose one replica has to confirm.
func startConfirmed(t *testing.T) *world {
	addrs := servers.replicated.get(t, func(ctx context.Context) ([]string, func(context.Context) error, error) {
		primary, err := sandbox.StartRedis(ctx, sandbox.RedisConfig{})
		if err != nil {
			return nil, nil, err
		}
		replica, err := sandbox.StartRedisReplica(ctx, primary.Addr(), sandbox.RedisConfig{})
		if err != nil {
			return nil, nil, errors.Join(err, primary.Stop(ctx))
		}
		group := sandbox.RedisGroup{replica, primary}
		return []string{primary.Addr()}, group.Stop, nil
	})
	w := redisWorld(addrs, sandbox.Prefix(t), redislock.Config{Confirm: 1})
	w.own = nil // as without confirmation
	return w
}

// startCluster is a Cluster; its clients find the nodes by the addresses that these announce, so a wire in between
// would be passed by.
func startCluster(t *testing.T) *world {
	addrs := servers.cluster.get(t, func(ctx context.Context) ([]string, func(context.Context) error, error) {
		group, err := sandbox.StartRedisCluster(ctx)
		if err != nil {
			return nil, nil, err
		}
		return group.Addrs()[:3:3], group.Stop, nil
	})
	prefix := sandbox.Prefix(t)
	return &world{addrs: addrs, wireless: true, open: func(t *testing.T, addrs []string, _ time.Duration) lock.Backend {
		t.Helper()
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: slices.Clone(addrs), Protocol: 2, // the client appends to it
			DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
			ClusterStateReloadInterval: time.Second, DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
		})
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
		backend, err := redislock.New(client, redislock.Config{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}}
}

func startReentrant(t *testing.T) *world {
	prefix := sandbox.Prefix(t)
	return &world{addrs: []string{sandbox.RedisAddr(t)}, open: func(t *testing.T, addrs []string, _ time.Duration) lock.Backend {
		t.Helper()
		backend, err := redislock.NewReentrant(redisClient(t, addrs[0]), redislock.Config{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}}
}

func startRedlock(t *testing.T) *world {
	addrs := servers.masters.get(t, func(ctx context.Context) ([]string, func(context.Context) error, error) {
		group, err := sandbox.StartRedisMasters(ctx, 5, sandbox.RedisConfig{})
		return group.Addrs(), group.Stop, err
	})
	w := redlockWorld(addrs, sandbox.Prefix(t))
	w.own = func(t *testing.T) *world {
		masters := make([]restarter, 3)
		addrs := make([]string, len(masters))
		for i := range masters {
			server := sandbox.OwnRedis(t, durable)
			masters[i], addrs[i] = server, server.Addr()
		}
		return redlockWorld(addrs, "").restartedBy(masters...)
	}
	return w
}

// durable is a Redis that keeps what it acknowledged.
var durable = sandbox.RedisConfig{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}}

func redlockWorld(addrs []string, prefix string) *world {
	return &world{addrs: addrs, open: func(t *testing.T, addrs []string, _ time.Duration) lock.Backend {
		t.Helper()
		var clients []*redis.Client
		for _, addr := range addrs {
			clients = append(clients, redisClient(t, addr))
		}
		backend, err := redislock.NewRedlock(clients, redislock.RedlockConfig{Prefix: prefix, NodeLimit: 250 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}}
}

func startEtcd(t *testing.T) *world {
	addr := servers.etcd.get(t, func(ctx context.Context) (string, func(context.Context) error, error) {
		server, err := sandbox.StartEtcd(ctx, sandbox.EtcdConfig{})
		if err != nil {
			return "", nil, err
		}
		return server.Addr(), server.Stop, nil
	})
	w := etcdWorld(addr, "/"+sandbox.Prefix(t)+"/")
	w.own = func(t *testing.T) *world {
		server := sandbox.OwnEtcd(t)
		return etcdWorld(server.Addr(), "").restartedBy(server)
	}
	return w
}

func etcdWorld(addr, prefix string) *world {
	return &world{addrs: []string{addr}, opaque: true, open: func(t *testing.T, addrs []string, _ time.Duration) lock.Backend {
		t.Helper()
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addrs[0]}, DialTimeout: time.Second, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Close(); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		return etcdlock.New(client, prefix)
	}}
}

func startZooKeeper(t *testing.T) *world {
	addr := servers.zookeeper.get(t, func(ctx context.Context) (string, func(context.Context) error, error) {
		server, err := sandbox.StartZooKeeper(ctx, sandbox.ZooKeeperConfig{})
		if err != nil {
			return "", nil, err
		}
		return server.Addr(), server.Stop, nil
	})
	w := zookeeperWorld(addr, "/"+strings.Trim(sandbox.Prefix(t), ":"))
	w.own = func(t *testing.T) *world {
		server := sandbox.OwnZooKeeper(t)
		return zookeeperWorld(server.Addr(), "").restartedBy(server)
	}
	return w
}

// A ZooKeeper session lasts 2 to 20 ticks, and our servers' tick is 200 ms.
const longestSession = 4 * time.Second

func zookeeperWorld(addr, root string) *world {
	return &world{addrs: []string{addr}, longest: longestSession, open: func(t *testing.T, addrs []string, ttl time.Duration) lock.Backend {
		t.Helper()
		session := min(ttl, longestSession)
		backend, err := zklock.New(addrs, zklock.Config{Root: root, Session: session})
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}}
}
