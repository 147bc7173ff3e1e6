package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/etcdlock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	ours "github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/lock/zklock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Tests(m).Run()) }

const (
	ttl     = 10 * time.Second
	workers = 64
)

// cycle locks and unlocks a key once.
type cycle func(ctx context.Context, key string) error

// contender is a lock library on a back end.
type contender struct {
	name string
	open func(b *testing.B) cycle
}

var singleRedis = []contender{
	{"holdfast", openRedis},
	{"bsm-redislock", openRedislock},
	{"redsync", openRedsync},
}

var backends = []contender{
	{"redis", openRedis},
	{"redis-token", openRedisWithTokens},
	{"redis-wait", openConfirmed},
	{"redlock-5", openRedlock},
	{"redsync-5", openRedsyncRedlock},
	{"postgres", openPostgres},
	{"postgres-advisory", openAdvisory},
	{"etcd", openEtcd},
	{"zookeeper", openZooKeeper},
}

// BenchmarkSingleRedis compares libraries on one Redis server. They take turns in short rounds, and each is judged by
// its median round: whatever else the machine does meanwhile, it does to all of them.
func BenchmarkSingleRedis(b *testing.B) {
	for _, n := range []int{1, 16, workers} {
		b.Run(fmt.Sprintf("own-keys/%02d-workers", n), func(b *testing.B) { compare(b, n, true) })
	}
	b.Run("one-key/16-workers", func(b *testing.B) { compare(b, 16, false) }) // alone it is as on a key of one's own
}

// compare lets b.N rounds of cycles pass for each library and reports the median time of a cycle.
func compare(b *testing.B, n int, ownKeys bool) {
	const cyclesPerRound = 256
	cycles := make([]cycle, len(singleRedis))
	for i, c := range singleRedis {
		cycles[i] = c.open(b)
		spend(b, cycles[i], n, cyclesPerRound, ownKeys) // connections, scripts
	}
	rounds := make([][]float64, len(singleRedis))
	for round := 0; b.Loop(); round++ {
		for i := range singleRedis {
			i = (i + round) % len(singleRedis) // nobody is always the first
			took := spend(b, cycles[i], n, cyclesPerRound, ownKeys)
			rounds[i] = append(rounds[i], float64(took.Nanoseconds())/1e3/cyclesPerRound)
		}
	}
	for i, c := range singleRedis {
		slices.Sort(rounds[i])
		b.ReportMetric(rounds[i][len(rounds[i])/2], c.name+"-us/lock")
	}
	b.ReportMetric(0, "ns/op") // of three libraries together: it says nothing
}

// spend lets n workers share some cycles, on keys of their own or on one.
func spend(b *testing.B, do cycle, n, cycles int, ownKeys bool) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // some give up after a TTL if there is no limit
	defer cancel()
	var left atomic.Int64
	left.Store(int64(cycles))
	started := time.Now()
	var all sync.WaitGroup
	for i := range n {
		key := "bench"
		if ownKeys {
			key = fmt.Sprintf("bench-%d", i)
		}
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(ctx, key); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(started)
}

// BenchmarkBackends compares what one lock and unlock costs on each system.
func BenchmarkBackends(b *testing.B) {
	for _, n := range []int{1, 16} {
		for _, c := range backends {
			b.Run(fmt.Sprintf("own-keys/%02d-workers/%s", n, c.name), func(b *testing.B) { run(b, c.open(b), n) })
		}
	}
}

// run lets n workers share b.N cycles on keys of their own.
func run(b *testing.B, do cycle, n int) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	took := spend(b, do, n, b.N, true)
	b.ReportMetric(float64(b.N)/took.Seconds(), "locks/s")
}

func ofLocker[L lock.Granted](b *testing.B, l *lock.Locker[L]) cycle {
	b.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return func(ctx context.Context, key string) error {
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			return err
		}
		return any(lease).(interface{ Release() error }).Release()
	}
}

// client is the same for all: what we ask of a client costs the others nothing.
func client(b *testing.B, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: workers,
	})
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func openRedis(b *testing.B) cycle {
	backend, err := ours.New(client(b, sandbox.RedisAddr(b)), ours.Config{Prefix: sandbox.Prefix(b)})
	if err != nil {
		b.Fatal(err)
	}
	return ofLocker(b, lock.New(backend, lock.TTL(ttl)))
}

func openRedislock(b *testing.B) cycle {
	c, prefix := redislock.New(client(b, sandbox.RedisAddr(b))), sandbox.Prefix(b)
	options := &redislock.Options{RetryStrategy: redislock.ExponentialBackoff(time.Millisecond, 50*time.Millisecond)}
	return func(ctx context.Context, key string) error {
		l, err := c.Obtain(ctx, prefix+key, ttl, options)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
}

func openRedsync(b *testing.B) cycle { return ofRedsync(b, sandbox.RedisAddr(b)) }

func ofRedsync(b *testing.B, addrs ...string) cycle {
	var pools []rsredis.Pool
	for _, addr := range addrs {
		pools = append(pools, goredis.NewPool(client(b, addr)))
	}
	rs, prefix := redsync.New(pools...), sandbox.Prefix(b)
	return func(ctx context.Context, key string) error {
		m := rs.NewMutex(prefix+key, redsync.WithExpiry(ttl), redsync.WithTries(10_000), redsync.WithRetryDelay(5*time.Millisecond))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			err = errors.New("redsync: not unlocked")
		}
		return err
	}
}

func openRedisWithTokens(b *testing.B) cycle {
	backend, err := ours.New(client(b, sandbox.RedisAddr(b)), ours.Config{Prefix: sandbox.Prefix(b)})
	if err != nil {
		b.Fatal(err)
	}
	return ofLocker(b, lock.NewFenced(lock.WithTokens(backend, pglock.NewTokens(pool(b))), lock.TTL(ttl)))
}

func pool(b *testing.B) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(sandbox.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 16
	p, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return p
}

func openPostgres(b *testing.B) cycle {
	return ofLocker(b, lock.NewFenced(pglock.New(pool(b)), lock.TTL(ttl)))
}

func openAdvisory(b *testing.B) cycle {
	backend, err := pglock.NewAdvisory(b.Context(), pool(b), 16)
	if err != nil {
		b.Fatal(err)
	}
	return ofLocker(b, lock.NewFenced(backend, lock.TTL(ttl)))
}

func openConfirmed(b *testing.B) cycle {
	primary := sandbox.OwnRedis(b, sandbox.RedisConfig{})
	replica, err := sandbox.StartRedisReplica(b.Context(), primary.Addr(), sandbox.RedisConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = replica.Stop(context.Background()) })
	backend, err := ours.New(client(b, primary.Addr()), ours.Config{Confirm: 1})
	if err != nil {
		b.Fatal(err)
	}
	return ofLocker(b, lock.New(backend, lock.TTL(ttl)))
}

func masters(b *testing.B) []string {
	group, err := sandbox.StartRedisMasters(b.Context(), 5, sandbox.RedisConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = group.Stop(context.Background()) })
	return group.Addrs()
}

func openRedlock(b *testing.B) cycle {
	var clients []*redis.Client
	for _, addr := range masters(b) {
		clients = append(clients, client(b, addr))
	}
	backend, err := ours.NewRedlock(clients, ours.RedlockConfig{})
	if err != nil {
		b.Fatal(err)
	}
	return ofLocker(b, lock.New(backend, lock.TTL(ttl)))
}

func openRedsyncRedlock(b *testing.B) cycle { return ofRedsync(b, masters(b)...) }

func openEtcd(b *testing.B) cycle {
	server := sandbox.OwnEtcd(b)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.URL()}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return ofLocker(b, lock.NewFenced(etcdlock.New(c, ""), lock.TTL(ttl)))
}

func openZooKeeper(b *testing.B) cycle {
	server := sandbox.OwnZooKeeper(b)
	backend, err := zklock.New([]string{server.Addr()}, zklock.Config{Session: 4 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	return ofLocker(b, lock.NewFenced(backend, lock.TTL(ttl)))
}
