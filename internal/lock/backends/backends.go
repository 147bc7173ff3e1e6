// Package backends opens the systems that a configuration names, for whoever wants leases and not a system.
//
// It settles which sessions and clients each of them gets and where its keys are. It connects to none of them: one
// that is away is no reason not to start. It refuses to read URLs of Redis: who runs one knows how.
package backends

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

// The back ends by name.
const (
	Redis            = "redis"
	Redlock          = "redlock"
	Etcd             = "etcd"
	ZooKeeper        = "zookeeper"
	Postgres         = "postgres"
	PostgresAdvisory = "postgres-advisory"

	// Auto is [Redis] if there is one, else [Postgres].
	Auto = "auto"
)

// Config says what there is.
type Config struct {
	Use    string // the one that leases are taken from, or [Auto]
	Prefix string // of all keys; installations that share a back end need one each

	Database  string   // URL of a migrated Postgres
	Redis     string   // URL of a server or Cluster; empty: none
	Confirm   int      // replicas of that Redis that have to confirm a lease
	Redlock   []string // URLs of independent Redis servers; empty: none
	Etcd      []string // endpoints, http://host:port; empty: none
	ZooKeeper []string // host:port of its servers; empty: none

	// Session is how long ZooKeeper lets a dead holder keep its keys: no lease there is shorter.
	Session time.Duration
	// Dial makes a client of a Redis URL that neither retries by itself nor keeps deadlines from its sockets.
	Dial func(url string) (redis.UniversalClient, error) `json:"-"`
}

// Set is every back end that there is.
type Set struct {
	Chosen lock.FencedBackend
	All    []lock.FencedBackend // the chosen one first

	pool   *pgxpool.Pool
	closes []func() error // in order of opening
}

// Limits of what leases stand on.
const (
	sessions         = 4  // for tokens and lease rows: a statement each
	advisorySessions = 16 // every holder and waiter of an advisory lock occupies one
	dialLimit        = 2 * time.Second
)

// Open makes every back end that there is.
func Open(ctx context.Context, c Config) (_ *Set, err error) {
	s := &Set{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.connect(ctx, c.Database); err != nil {
		return nil, err
	}
	if c.Use == Auto {
		c.Use = Postgres
		if c.Redis != "" {
			c.Use = Redis
		}
	}
	for _, b := range []struct {
		name  string
		there bool
		open  func(context.Context, *Config) (lock.FencedBackend, error)
	}{
		{Redis, c.Redis != "", s.redis},
		{Redlock, len(c.Redlock) > 0, s.redlock},
		{Etcd, len(c.Etcd) > 0, s.etcd},
		{ZooKeeper, len(c.ZooKeeper) > 0, s.zookeeper},
		{Postgres, true, s.postgres},
		{PostgresAdvisory, true, s.advisory},
	} {
		if !b.there {
			continue
		}
		backend, err := b.open(ctx, &c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		s.onClose(backend.Close)
		if b.name == c.Use {
			s.Chosen, s.All = backend, slices.Insert(s.All, 0, backend)
		} else {
			s.All = append(s.All, backend)
		}
	}
	if s.Chosen == nil {
		return nil, fmt.Errorf("%s is to be used and has no address", c.Use)
	}
	return s, nil
}

func (s *Set) connect(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns = sessions
	config.ConnConfig.ConnectTimeout = dialLimit
	config.ConnConfig.RuntimeParams["application_name"] = "holdfast-locks"
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("database pool: %w", err)
	}
	s.onClose(func() error { s.pool.Close(); return nil })
	return nil
}

// numbered gives leases that have no tokens those of Postgres.
func (s *Set) numbered(bare lock.Backend) lock.FencedBackend {
	return lock.WithTokens(bare, pglock.NewTokens(s.pool))
}

func (s *Set) redis(_ context.Context, c *Config) (lock.FencedBackend, error) {
	client, err := c.Dial(c.Redis)
	if err != nil {
		return nil, err
	}
	s.onClose(client.Close)
	bare, err := redislock.New(client, redislock.Config{Prefix: c.redisPrefix(), Confirm: c.Confirm})
	if err != nil {
		return nil, err
	}
	return s.numbered(bare), nil
}

func (s *Set) redlock(_ context.Context, c *Config) (lock.FencedBackend, error) {
	clients := make([]*redis.Client, len(c.Redlock))
	for i, url := range c.Redlock {
		client, err := c.Dial(url)
		if err != nil {
			return nil, err
		}
		s.onClose(client.Close)
		single, ok := client.(*redis.Client)
		if !ok {
			return nil, errors.New("a Cluster is not an independent server")
		}
		clients[i] = single
	}
	bare, err := redislock.NewRedlock(clients, redislock.RedlockConfig{Prefix: c.redisPrefix()})
	if err != nil {
		return nil, err
	}
	return s.numbered(bare), nil
}

func (c *Config) redisPrefix() string { return c.Prefix + ":lock:" }

func (s *Set) etcd(_ context.Context, c *Config) (lock.FencedBackend, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Etcd, DialTimeout: dialLimit, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	s.onClose(client.Close)
	return etcdlock.New(client, "/"+c.Prefix+"/locks/"), nil
}

func (*Set) zookeeper(_ context.Context, c *Config) (lock.FencedBackend, error) {
	return zklock.New(c.ZooKeeper, zklock.Config{Root: "/" + c.Prefix + "/locks", Session: c.Session})
}

func (s *Set) postgres(context.Context, *Config) (lock.FencedBackend, error) {
	return pglock.New(s.pool), nil
}

func (s *Set) advisory(ctx context.Context, _ *Config) (lock.FencedBackend, error) {
	return pglock.NewAdvisory(ctx, s.pool, advisorySessions)
}

func (s *Set) onClose(end func() error) { s.closes = append(s.closes, end) }

// Close ends every back end and its connections.
func (s *Set) Close() error {
	var errs []error
	for _, end := range slices.Backward(s.closes) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}
