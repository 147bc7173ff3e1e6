package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/etcdlock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/lock/zklock"
)

// kind is where the leases of jobs are kept.
type kind string

// The kinds. Redis and Redlock have no tokens of their own: theirs are drawn from Postgres.
const (
	onRedis     kind = "redis"
	onRedlock   kind = "redlock"
	onEtcd      kind = "etcd"
	onZooKeeper kind = "zookeeper"
	onPostgres  kind = "postgres"
	onAdvisory  kind = "advisory"
)

// kinds lists every one.
func kinds() []kind { return []kind{onRedis, onRedlock, onEtcd, onZooKeeper, onPostgres, onAdvisory} }

// lockerConfig says where the leases of jobs are kept.
type lockerConfig struct {
	Kind kind
	// Redis is the server or Cluster of [onRedis]. It stays the caller's.
	Redis redis.UniversalClient
	// Addrs are host:port of each server of [onRedlock], [onEtcd] and [onZooKeeper].
	Addrs []string
	// Database is the URL of a migrated database.
	Database string
	Prefix   string        // of all keys; installations that share a back end need one each
	TTL      time.Duration // how long the work of a dead holder waits
}

// poolSize is how many sessions the locks of jobs have with Postgres: a draw or a lease is one statement, and there are
// few jobs.
const poolSize = 4

// maxSessions is how many advisory locks may be held, or waited for, at once.
const maxSessions = 16

// openLocker makes a locker, and what closes it and all it needed. Nothing needs to be reachable yet.
func openLocker(cfg lockerConfig) (locker *lock.Locker[*lock.Fenced], closeAll func(), err error) {
	var o opener
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if err := o.connect(cfg.Database); err != nil {
		return nil, nil, err
	}
	backend, err := o.open(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("lock back end %s: %w", cfg.Kind, err)
	}
	locker = lock.NewFenced(backend, lock.TTL(cfg.TTL))
	o.later(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = locker.Close(ctx) // what is not given up in time ends with its TTL
	})
	return locker, o.close, nil
}

// opener collects what has to be closed, the last first.
type opener struct {
	pool   *pgxpool.Pool
	closes []func()
}

func (o *opener) later(f func()) { o.closes = append(o.closes, f) }

func (o *opener) close() {
	for _, end := range slices.Backward(o.closes) {
		end()
	}
}

func (o *opener) connect(database string) error {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns = poolSize
	config.ConnConfig.ConnectTimeout = 2 * time.Second
	config.ConnConfig.RuntimeParams["application_name"] = "holdfast-jobs"
	config.ConnConfig.RuntimeParams["statement_timeout"] = "3s"
	if o.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return fmt.Errorf("database pool: %w", err)
	}
	o.later(o.pool.Close)
	return nil
}

func (o *opener) open(cfg lockerConfig) (lock.FencedBackend, error) {
	switch cfg.Kind {
	case onRedis:
		if cfg.Redis == nil {
			return nil, errors.New("there is no Redis")
		}
		backend, err := redislock.New(cfg.Redis, redislock.Config{Prefix: cfg.Prefix + ":lock:"})
		return o.numbered(backend), err
	case onRedlock:
		return o.redlock(cfg)
	case onEtcd:
		return o.etcd(cfg)
	case onZooKeeper:
		return zklock.New(cfg.Addrs, zklock.Config{Root: "/" + cfg.Prefix + "/locks", Session: cfg.TTL})
	case onPostgres:
		return pglock.New(o.pool), nil
	case onAdvisory:
		return pglock.NewAdvisory(context.Background(), o.pool, maxSessions)
	}
	return nil, errors.New("there is no such back end")
}

// numbered gives leases that have no tokens those of Postgres, which the service has anyway.
func (o *opener) numbered(backend lock.Backend) lock.FencedBackend {
	return lock.WithTokens(backend, pglock.NewTokens(o.pool))
}

func (o *opener) redlock(cfg lockerConfig) (lock.FencedBackend, error) {
	clients := make([]*redis.Client, len(cfg.Addrs))
	for i, addr := range cfg.Addrs {
		clients[i] = redis.NewClient(&redis.Options{
			Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, PoolTimeout: time.Second,
		})
		o.later(func() { _ = clients[i].Close() }) // nothing is left to send
	}
	backend, err := redislock.NewRedlock(clients, redislock.RedlockConfig{Prefix: cfg.Prefix + ":lock:"})
	return o.numbered(backend), err
}

func (o *opener) etcd(cfg lockerConfig) (lock.FencedBackend, error) {
	endpoints := make([]string, len(cfg.Addrs))
	for i, addr := range cfg.Addrs {
		endpoints[i] = "http://" + addr
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	o.later(func() { _ = client.Close() }) // nothing is left to send
	return etcdlock.New(client, "/"+cfg.Prefix+"/locks/"), nil
}
