package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"
)

// StartRedisReplica runs a replica of the Redis server at master, host:port, and returns when it has all data, follows,
// and is counted by the master's WAIT. master may be the address of a proxy, so that the link can be broken; pausing a
// replica loses nothing.
func StartRedisReplica(ctx context.Context, master string, config RedisConfig) (*Redis, error) {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{"replicaof": host + " " + port}
	maps.Copy(settings, config.Settings)
	config.Settings = settings
	replica, err := StartRedis(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := replica.follow(ctx, master); err != nil {
		return nil, errors.Join(fmt.Errorf("replica of %s: %w", master, err), replica.Stop(context.WithoutCancel(ctx)))
	}
	return replica, nil
}

// follow waits until the replica has all data and its master knows. A replica says that its link is up before it
// acknowledges anything, and a master counts none that has not; the two are up to a second apart.
func (r *Redis) follow(ctx context.Context, master string) error {
	upToDate := func() (bool, error) {
		info, err := redisInfo(r.Addr())
		return strings.Contains(info, "master_link_status:up\r\n"), err
	}
	if err := waitUntil(ctx, upToDate); err != nil {
		return err
	}
	client := redisClient(master)
	defer client.Close()
	// A message is replicated and leaves no key. After it an acknowledged offset of 0 can only mean: none yet.
	if err := client.Publish(ctx, "sandbox", "").Err(); err != nil {
		return err
	}
	acknowledged := regexp.MustCompile(fmt.Sprintf(`port=%d,state=online,offset=[1-9]`, r.Port()))
	return waitUntil(ctx, func() (bool, error) {
		info, err := client.Info(ctx, "replication").Result()
		return acknowledged.MatchString(info), err
	})
}

// Promote makes a replica a master of its own, with the data that it has: what a failover does. It stays one over restarts.
func (r *Redis) Promote(ctx context.Context) error {
	client := r.client()
	defer client.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.settings, "replicaof")
	return client.ReplicaOf(ctx, "NO", "ONE").Err()
}

// StartRedisMasters runs n Redis servers that know nothing of each other, as Redlock wants them. They keep nothing
// when they are stopped.
func StartRedisMasters(ctx context.Context, n int, config RedisConfig) (RedisGroup, error) {
	if config.Dir != "" || config.Port != 0 {
		return nil, errors.New("several servers cannot share a directory or a port")
	}
	masters := make(RedisGroup, n)
	var starting errgroup.Group
	for i := range masters {
		starting.Go(func() (err error) {
			masters[i], err = StartRedis(ctx, config)
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, errors.Join(err, masters.Stop(context.WithoutCancel(ctx)))
	}
	return masters, nil
}

// RedisGroup is several Redis servers.
type RedisGroup []*Redis

// Addrs lists the addresses of all servers.
func (g RedisGroup) Addrs() []string {
	addrs := make([]string, len(g))
	for i, r := range g {
		addrs[i] = r.Addr()
	}
	return addrs
}

// Stop stops all servers, see [Redis.Stop].
func (g RedisGroup) Stop(ctx context.Context) error {
	errs := make([]error, len(g))
	var stopping errgroup.Group
	for i, r := range g {
		if r != nil {
			stopping.Go(func() error {
				errs[i] = r.Stop(ctx)
				return nil
			})
		}
	}
	_ = stopping.Wait() // the errors are in errs, all of them
	return errors.Join(errs...)
}

const (
	clusterMasters = 3 // the least that elects a new master
	clusterSlots   = 16384
)

// StartRedisCluster runs a Redis Cluster of three masters, the first three of the group, and a replica each, in the
// same order. It returns when every node sees the whole cluster in order. A master that does not answer for a second
// is replaced by its replica.
func StartRedisCluster(ctx context.Context) (RedisGroup, error) {
	nodes, err := StartRedisMasters(ctx, 2*clusterMasters, RedisConfig{Settings: map[string]string{
		"cluster-enabled":      "yes",
		"cluster-node-timeout": "1000", // milliseconds
	}})
	if err != nil {
		return nil, err
	}
	if err := nodes.form(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("form a cluster: %w", err), nodes.Stop(context.WithoutCancel(ctx)))
	}
	return nodes, nil
}

// form introduces the nodes to each other, gives the slots to the masters, and attaches the replicas.
func (g RedisGroup) form(ctx context.Context) error {
	clients := make([]*redis.Client, len(g))
	for i, node := range g {
		clients[i] = node.client()
		defer clients[i].Close()
	}
	for i, client := range clients {
		if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if i < clusterMasters {
			first, next := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters
			if err := client.ClusterAddSlotsRange(ctx, first, next-1).Err(); err != nil {
				return err
			}
		}
		if i > 0 {
			if err := client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", g[0].Port()).Err(); err != nil {
				return err
			}
		}
	}
	all := fmt.Sprintf("cluster_known_nodes:%d\r\n", len(g))
	if err := everyNode(ctx, clients, func(info string) bool { return strings.Contains(info, all) }); err != nil {
		return err
	}
	for i, client := range clients[clusterMasters:] {
		id, err := clients[i].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		follow := func() (bool, error) {
			err := client.ClusterReplicate(ctx, id).Err()
			if err != nil && strings.HasPrefix(err.Error(), "ERR Unknown node") {
				return false, nil // the news of that node is on its way
			}
			return err == nil, err
		}
		if err := waitUntil(ctx, follow); err != nil {
			return err
		}
	}
	return everyNode(ctx, clients, func(info string) bool { return strings.Contains(info, "cluster_state:ok\r\n") })
}

// everyNode waits until a condition on its view of the cluster holds on each node.
func everyNode(ctx context.Context, nodes []*redis.Client, holds func(info string) bool) error {
	for _, node := range nodes {
		err := waitUntil(ctx, func() (bool, error) {
			info, err := node.ClusterInfo(ctx).Result()
			return holds(info), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitUntil polls until a condition holds, fails, or the context or the limit for starting a server is over.
func waitUntil(ctx context.Context, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if holds, err := condition(); holds || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// client is a connection for our own commands.
func (r *Redis) client() *redis.Client { return redisClient(r.Addr()) }

// redisClient makes connections without retries, with short timeouts and nothing in the background.
func redisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		ContextTimeoutEnabled: true, DialTimeout: startLimit, ReadTimeout: startLimit, WriteTimeout: startLimit,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
