package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/etcdlock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/lock/zklock"
)

// Kinds of lock that holders take.
const (
	setNX     = "SET NX PX"             // naively
	setNXIncr = "SET NX PX, INCR"       // naively, with a token from a counter in the same Redis
	redisOne  = "Redis"                 // internal/lock on one Redis
	redisTok  = "Redis, Postgres token" // the same with a token drawn from Postgres
	redlock   = "Redlock"               // internal/lock on independent Redis servers
	redlockTk = "Redlock, Postgres token"
	etcd      = "etcd"
	zookeeper = "ZooKeeper"
	partition = "partition" // of a stream: whoever has its message
)

// lockSpec says which lock a holder takes.
type lockSpec struct {
	Kind    string
	Servers []string      // one, but for Redlock
	TTL     time.Duration // of the lease
	Renew   bool          // by a watchdog, while the holder runs
	Confirm int           // replicas that have to confirm, for Redis
}

// heldLock is a lock that was granted.
type heldLock struct {
	token lock.Token
	lease *lock.Lease // nil if the lock was taken naively
}

func (h heldLock) String() string {
	if h.token > 0 {
		return fmt.Sprintf("holds the lock, token %d", h.token)
	}
	return "holds the lock"
}

// acquirer takes the lock of a name, and waits for it.
type acquirer func(ctx context.Context, name, owner string) (heldLock, error)

// open connects to the lock's servers. What it opens ends with the process.
func (l lockSpec) open(ctx context.Context, pool *pgxpool.Pool) (acquirer, error) {
	switch l.Kind {
	case setNX, setNXIncr:
		return l.naive, nil
	case redisOne, redisTok:
		backend, err := redislock.New(newRedisClient(l.Servers[0]), redislock.Config{Confirm: l.Confirm})
		return l.onRedis(backend, pool), err
	case redlock, redlockTk:
		clients := make([]*redis.Client, len(l.Servers))
		for i, addr := range l.Servers {
			clients[i] = newRedisClient(addr)
		}
		backend, err := redislock.NewRedlock(clients, redislock.RedlockConfig{NodeLimit: l.TTL / 10})
		return l.onRedis(backend, pool), err
	case etcd:
		client, err := clientv3.New(clientv3.Config{Endpoints: l.Servers, DialTimeout: patience, Context: ctx})
		if err != nil {
			return nil, err
		}
		return fenced(lock.NewFenced(etcdlock.New(client, ""), l.options()...)), nil
	case zookeeper:
		backend, err := zklock.New(l.Servers, zklock.Config{Session: l.TTL})
		if err != nil {
			return nil, err
		}
		return fenced(lock.NewFenced(backend, l.options()...)), nil
	case partition:
		return l.consume(pool), nil
	default:
		return nil, fmt.Errorf("there is no lock %q", l.Kind)
	}
}

func (l lockSpec) options() []lock.Option {
	options := []lock.Option{lock.TTL(l.TTL), lock.Wait(patience), lock.Pause(lock.Backoff{Min: 2 * time.Millisecond, Max: 20 * time.Millisecond})}
	if !l.Renew {
		options = append(options, lock.NoRenew())
	}
	return options
}

// onRedis makes a lock with a token from Postgres, or without one.
func (l lockSpec) onRedis(backend lock.Backend, pool *pgxpool.Pool) acquirer {
	if l.Kind == redisTok || l.Kind == redlockTk {
		return fenced(lock.NewFenced(lock.WithTokens(backend, pglock.NewTokens(pool)), l.options()...))
	}
	locker := lock.New(backend, l.options()...)
	return func(ctx context.Context, name, owner string) (heldLock, error) {
		lease, err := insist(func() (*lock.Lease, error) { return locker.Acquire(ctx, name, lock.Meta(owner)) })
		return heldLock{lease: lease}, err
	}
}

func fenced(locker *lock.Locker[*lock.Fenced]) acquirer {
	return func(ctx context.Context, name, owner string) (heldLock, error) {
		granted, err := insist(func() (*lock.Fenced, error) { return locker.Acquire(ctx, name, lock.Meta(owner)) })
		if err != nil {
			return heldLock{}, err
		}
		return heldLock{token: granted.Fence(), lease: granted.Lease}, nil
	}
}

// insist asks a few times more where no answer came: how busy the machine is, is no experiment's subject.
func insist[L any](acquire func() (L, error)) (L, error) {
	for try := 1; ; try++ {
		granted, err := acquire()
		if !errors.Is(err, lock.ErrUnknownOutcome) || try == 5 {
			return granted, err
		}
	}
}

// naive takes the lock as it is often written: SET NX PX in a loop.
func (l lockSpec) naive(ctx context.Context, name, owner string) (heldLock, error) {
	n := naiveLock{client: newRedisClient(l.Servers[0]), key: name, owner: owner}
	for tick := time.Tick(2 * time.Millisecond); ; {
		ok, err := n.setNX(ctx, l.TTL)
		switch {
		case err != nil:
			return heldLock{}, err
		case ok && l.Kind == setNXIncr:
			token, err := n.incr(ctx)
			return heldLock{token: lock.Token(token)}, err
		case ok:
			return heldLock{}, nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return heldLock{}, ctx.Err()
		}
	}
}
