package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/etcdlock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/lock/zklock"
)

// lockConfig says where work that must have one runner keeps its leases. Nothing has to be set: the service runs a
// Redis and a Postgres anyway.
type lockConfig struct {
	Lock          string   `env:"HOLDFAST_LOCK" enum:"auto,redis,redlock,etcd,zookeeper,postgres,postgres-advisory" default:"auto" help:"Where work that must have one runner keeps its lease: ${enum}. auto: redis if there is one, else postgres."`
	LockPrefix    string   `env:"HOLDFAST_LOCK_PREFIX" default:"holdfast" help:"Prefix of the leases' keys; installations that share a back end need one each."`
	LockConfirm   int      `env:"HOLDFAST_LOCK_CONFIRM" default:"0" help:"How many replicas of the Redis have to confirm a lease; 0 to 10."`
	LockRedlock   []string `env:"HOLDFAST_LOCK_REDLOCK" help:"Independent Redis servers for Redlock, redis://…, an odd number from 3, with commas between."`
	LockEtcd      []string `env:"HOLDFAST_LOCK_ETCD" help:"Endpoints of an etcd cluster, http://host:port, with commas between."`
	LockZookeeper []string `env:"HOLDFAST_LOCK_ZOOKEEPER" help:"Servers of a ZooKeeper ensemble, host:port, with commas between."`
}

func (c *lockConfig) check() error {
	if c.LockConfirm < 0 || c.LockConfirm > 10 {
		return fmt.Errorf("HOLDFAST_LOCK_CONFIRM is %d: it must be 0 to 10", c.LockConfirm)
	}
	if c.LockPrefix == "" || strings.ContainsAny(c.LockPrefix, "/{}*?[]^\\") {
		return fmt.Errorf("HOLDFAST_LOCK_PREFIX is %q: it must be a word without slashes, braces and pattern characters", c.LockPrefix)
	}
	return nil
}

// lockBackends are all places where this installation may keep leases.
type lockBackends struct {
	chosen lock.FencedBackend
	all    []lock.FencedBackend
	close  []func() error // of what they stand on, in order of opening
}

// Limits of what leases stand on besides the stores of the service.
const (
	lockSessions     = 4  // for tokens and lease rows: a statement each
	advisorySessions = 16 // every holder and waiter of an advisory lock occupies one
	lockDialLimit    = 2 * time.Second
)

// openLocks makes every back end that is configured. It connects to none: a back end that is away is no reason not
// to start.
func openLocks(ctx context.Context, c *lockConfig, databaseURL, redisURL string) (_ *lockBackends, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := &lockBackends{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	pool, err := lockPool(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	b.onClose(func() error { pool.Close(); return nil })
	tokens := pglock.NewTokens(pool)
	advisory, err := pglock.NewAdvisory(ctx, pool, advisorySessions)
	if err != nil {
		return nil, err
	}
	backends := map[string]lock.FencedBackend{"postgres": pglock.New(pool), "postgres-advisory": advisory}
	if redisURL != "" {
		bare, err := b.redis(c, redisURL)
		if err != nil {
			return nil, fmt.Errorf("HOLDFAST_REDIS_URL: %w", err)
		}
		backends["redis"] = lock.WithTokens(bare, tokens)
	}
	if len(c.LockRedlock) > 0 {
		bare, err := b.redlock(c)
		if err != nil {
			return nil, fmt.Errorf("HOLDFAST_LOCK_REDLOCK: %w", err)
		}
		backends["redlock"] = lock.WithTokens(bare, tokens)
	}
	if len(c.LockEtcd) > 0 {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.LockEtcd, DialTimeout: lockDialLimit, Logger: zap.NewNop()})
		if err != nil {
			return nil, fmt.Errorf("HOLDFAST_LOCK_ETCD: %w", err)
		}
		b.onClose(client.Close)
		backends["etcd"] = etcdlock.New(client, "/"+c.LockPrefix+"/locks/")
	}
	if len(c.LockZookeeper) > 0 {
		if backends["zookeeper"], err = zklock.New(c.LockZookeeper, zklock.Config{Root: "/" + c.LockPrefix + "/locks"}); err != nil {
			return nil, fmt.Errorf("HOLDFAST_LOCK_ZOOKEEPER: %w", err)
		}
	}
	return b, b.choose(c.Lock, backends)
}

// choose picks the back end that leases are taken from, and puts it first.
func (b *lockBackends) choose(name string, backends map[string]lock.FencedBackend) error {
	if name == "auto" {
		name = "postgres"
		if backends["redis"] != nil {
			name = "redis"
		}
	}
	for _, n := range []string{name, "redis", "redlock", "etcd", "zookeeper", "postgres", "postgres-advisory"} {
		if backend := backends[n]; backend != nil && (n != name || b.chosen == nil) {
			if n == name {
				b.chosen = backend
			}
			b.all = append(b.all, backend)
		}
	}
	if b.chosen == nil {
		return fmt.Errorf("HOLDFAST_LOCK is %s, whose address is not set", name)
	}
	return nil
}

func lockPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns = lockSessions
	config.ConnConfig.ConnectTimeout = lockDialLimit
	config.ConnConfig.RuntimeParams["application_name"] = "holdfast-locks"
	return pgxpool.NewWithConfig(ctx, config)
}

func (b *lockBackends) redis(c *lockConfig, url string) (*redislock.Backend, error) {
	client, err := gate.Dial(url)
	if err != nil {
		return nil, err
	}
	b.onClose(client.Close)
	return redislock.New(client, redislock.Config{Prefix: c.LockPrefix + ":lock:", Confirm: c.LockConfirm})
}

func (b *lockBackends) redlock(c *lockConfig) (*redislock.Redlock, error) {
	var clients []*redis.Client
	for _, url := range c.LockRedlock {
		client, err := gate.Dial(url)
		if err != nil {
			return nil, err
		}
		b.onClose(client.Close)
		single, ok := client.(*redis.Client)
		if !ok {
			return nil, errors.New("a Cluster is not an independent server")
		}
		clients = append(clients, single)
	}
	return redislock.NewRedlock(clients, redislock.RedlockConfig{Prefix: c.LockPrefix + ":lock:"})
}

func (b *lockBackends) onClose(end func() error) { b.close = append(b.close, end) }

// Close ends every back end and its connections.
func (b *lockBackends) Close() error {
	var errs []error
	for _, backend := range b.all {
		errs = append(errs, backend.Close())
	}
	for _, end := range slices.Backward(b.close) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}
