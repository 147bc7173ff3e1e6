package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// Stage is what one run of a case has at hand. What it starts ends with the case. It is safe for concurrent use.
type Stage struct {
	experiment *Experiment
	servers    *servers
	timeline   *timeline
	name       string // of this run, unlike any other
	short      bool   // see Config.Short

	mu      sync.Mutex // protects what follows
	endings []func()   // run backwards when the case is over
}

// Name is a name that no other run has: of a lock, a row, a prefix of keys.
func (s *Stage) Name() string { return s.name }

// Mark records that something happened.
func (s *Stage) Mark(actor string, tone Tone, format string, args ...any) {
	s.timeline.mark(Moment{Actor: actor, Tone: tone, Text: fmt.Sprintf(format, args...)})
}

// Begin records that something lasts from now on, until End or the end of the case.
func (s *Stage) Begin(actor string, tone Tone, format string, args ...any) {
	s.timeline.begin(Moment{Actor: actor, Tone: tone, Text: fmt.Sprintf(format, args...)})
}

// End ends what began.
func (s *Stage) End(actor string, tone Tone) { s.timeline.end(actor, tone) }

// Note adds a sentence of evidence to the result.
func (s *Stage) Note(format string, args ...any) { s.timeline.note(format, args...) }

// Until polls until the condition holds; an experiment waits for what can be seen, not for a time.
func (s *Stage) Until(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tick := time.NewTicker(2 * time.Millisecond); ; {
		ok, err := holds()
		if err != nil || ok {
			tick.Stop()
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("it was not seen that %s: %w", what, ctx.Err())
		}
	}
}

// onEnd has something done when the case is over.
func (s *Stage) onEnd(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endings = append(s.endings, do)
}

func (s *Stage) end() {
	s.mu.Lock()
	endings := s.endings
	s.endings = nil
	s.mu.Unlock()
	for _, do := range slices.Backward(endings) {
		do()
	}
}

// Redis returns the address of the Redis that all experiments share; it is not stopped, flushed or reconfigured.
func (s *Stage) Redis(ctx context.Context) (string, error) {
	server, err := s.servers.redis.get(func() (*sandbox.Redis, error) {
		return sandbox.StartRedis(ctx, sandbox.RedisConfig{Progress: s.servers.progress})
	})
	if err != nil {
		return "", err
	}
	return server.Addr(), nil
}

// Postgres returns the URL of the lab's database, with the tables of store.sql, on a server that all share.
func (s *Stage) Postgres(ctx context.Context) (string, error) {
	server, err := s.servers.postgres.get(func() (*sandbox.Postgres, error) { return startStore(ctx, s.servers.progress) })
	if err != nil {
		return "", err
	}
	return server.URL(storeDatabase), nil
}

// Etcd returns the URL of an etcd server that all experiments share.
func (s *Stage) Etcd(ctx context.Context) (string, error) {
	server, err := s.servers.etcd.get(func() (*sandbox.Etcd, error) {
		return sandbox.StartEtcd(ctx, sandbox.EtcdConfig{Progress: s.servers.progress})
	})
	if err != nil {
		return "", err
	}
	return server.URL(), nil
}

// ZooKeeper returns the address of a ZooKeeper server that all experiments share.
func (s *Stage) ZooKeeper(ctx context.Context) (string, error) {
	server, err := s.servers.zookeeper.get(func() (*sandbox.ZooKeeper, error) {
		return sandbox.StartZooKeeper(ctx, sandbox.ZooKeeperConfig{Progress: s.servers.progress})
	})
	if err != nil {
		return "", err
	}
	return server.Addr(), nil
}

// OwnRedis starts a Redis that this run may break.
func (s *Stage) OwnRedis(ctx context.Context, config sandbox.RedisConfig) (*sandbox.Redis, error) {
	server, err := sandbox.StartRedis(ctx, config)
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { s.stop(server.Stop) })
	return server, nil
}

// OwnReplica starts a replica of the Redis at an address, which may be that of a proxy.
func (s *Stage) OwnReplica(ctx context.Context, master string) (*sandbox.Redis, error) {
	server, err := sandbox.StartRedisReplica(ctx, master, sandbox.RedisConfig{})
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { s.stop(server.Stop) })
	return server, nil
}

// OwnMasters starts independent Redis servers that this run may break.
func (s *Stage) OwnMasters(ctx context.Context, n int) (sandbox.RedisGroup, error) {
	group, err := sandbox.StartRedisMasters(ctx, n, sandbox.RedisConfig{})
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { s.stop(group.Stop) })
	return group, nil
}

// Proxy puts a wire that can be broken before a server.
func (s *Stage) Proxy(target string) (*fault.Proxy, error) {
	proxy, err := fault.NewProxy(target)
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { s.complain(proxy.Close()) })
	return proxy, nil
}

// Pool connects to a Postgres database.
func (s *Stage) Pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	s.onEnd(pool.Close)
	return pool, nil
}

// Client connects to a Redis server.
func (s *Stage) Client(addr string) *redis.Client {
	client := newRedisClient(addr)
	s.onEnd(func() { s.complain(client.Close()) })
	return client
}

// newRedisClient never sends a command twice by itself: how often something was sent is what experiments are about.
func newRedisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience, DialerRetries: 1,
	})
}

// stop ends a server whatever became of the case's ctx.
func (s *Stage) stop(stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.complain(stop(ctx))
}

// complain notes what went wrong while cleaning up; it does not change what was seen.
func (s *Stage) complain(err error) {
	if err != nil && !errors.Is(err, redis.ErrClosed) {
		s.Note("while cleaning up: %v", err)
	}
}

// Locker returns a locker of internal/lock on a Redis server.
func (s *Stage) Locker(addr string, config redislock.Config, options ...lock.Option) (*lock.Locker[*lock.Lease], error) {
	backend, err := redislock.New(s.Client(addr), config)
	if err != nil {
		return nil, err
	}
	return s.lockOn(backend, options...), nil
}

// lockOn returns a locker on a back end; both end with the case.
func (s *Stage) lockOn(backend lock.Backend, options ...lock.Option) *lock.Locker[*lock.Lease] {
	locker := lock.New(backend, options...)
	s.onEnd(func() { s.stop(locker.Close) })
	return locker
}

// numbered is one of several names that no other run has.
func (s *Stage) numbered(n int) string { return s.name + "-" + strconv.Itoa(n) }
