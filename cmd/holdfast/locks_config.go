package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/lock/backends"
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
type lockBackends struct{ *backends.Set }

// openLocks makes every back end that is configured. Lease is the shortest that will be asked for.
func openLocks(ctx context.Context, c *lockConfig, databaseURL, redisURL string, lease time.Duration) (*lockBackends, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	set, err := backends.Open(ctx, backends.Config{
		Use: c.Lock, Prefix: c.LockPrefix, Database: databaseURL, Redis: redisURL, Confirm: c.LockConfirm,
		Redlock: c.LockRedlock, Etcd: c.LockEtcd, ZooKeeper: c.LockZookeeper, Session: lease, Dial: gate.Dial,
	})
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_LOCK and what it needs: %w", err)
	}
	return &lockBackends{set}, nil
}
