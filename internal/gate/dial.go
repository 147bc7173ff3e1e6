package gate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Limits of a connection. A call of the gate has its own, shorter deadline; these bound everything else.
const (
	dialTimeout = 500 * time.Millisecond
	ioTimeout   = time.Second
	poolTimeout = 500 * time.Millisecond
	poolSize    = 2 * slotGroups // a call in flight for each group, probes, and readers beside them
	// clusterReload bounds how long a client believes in a layout of before a failover.
	clusterReload = time.Second
)

// Dial makes a client that never sends a script twice by itself and never waits without a limit. It does not
// connect yet. The URL is one of
//
//	redis://[user:password@]host:port[/db]          one server; rediss:// with TLS, unix:// for a socket
//	redis+cluster://[user:password@]host:port[,host:port…]   a Cluster, by some of its nodes; rediss+cluster:// with TLS
func Dial(address string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if base, ok := strings.CutSuffix(scheme, "+cluster"); ok {
		return dialCluster(base + "://" + rest)
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errAddress
	}
	o.Protocol = 2
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, poolTimeout
	o.ContextTimeoutEnabled = true
	o.PoolSize = poolSize
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

func dialCluster(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(spreadHosts(address))
	if err != nil {
		return nil, errAddress
	}
	o.Protocol = 2
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, poolTimeout
	o.ContextTimeoutEnabled = true
	o.PoolSize = poolSize
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClusterStateReloadInterval = clusterReload
	return redis.NewClusterClient(o), nil
}

// spreadHosts turns scheme://user@a,b,c/?x=y into scheme://user@a/?x=y&addr=b&addr=c, which the library reads.
func spreadHosts(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		end = i
	}
	authority, tail := rest[:end], rest[end:]
	user := authority[:strings.LastIndexByte(authority, '@')+1]
	hosts := strings.Split(authority[len(user):], ",")
	path, query, _ := strings.Cut(tail, "?")
	for _, host := range hosts[1:] {
		query += "&addr=" + url.QueryEscape(host)
	}
	return scheme + "://" + user + hosts[0] + path + "?" + strings.TrimPrefix(query, "&")
}

// errAddress says no more: the library's error repeats the part of the address it stumbled over, which may be of the password.
var errAddress = errors.New("it must be redis://user:password@host:port/number, with special characters percent-encoded")

// ErrEvicts is a Redis that may throw keys away by itself.
var ErrEvicts = errors.New("the server evicts keys")

// CheckPolicy reports [ErrEvicts] when a master may evict keys (its maxmemory-policy is not noeviction), another error when it cannot be
// asked. An evicted item costs a look into the ledger, an evicted lease or counter of others on the same server
// costs more: such a server is not one to start on.
func CheckPolicy(ctx context.Context, client redis.UniversalClient) error {
	check := func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "memory").Result()
		if err != nil {
			return fmt.Errorf("maxmemory-policy of %s: %w", node.Options().Addr, err)
		}
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name != "maxmemory_policy" {
				continue
			}
			if value != "noeviction" {
				return fmt.Errorf("%w: maxmemory-policy of %s is %s, it must be noeviction", ErrEvicts, node.Options().Addr, value)
			}
			return nil
		}
		return fmt.Errorf("%s does not tell its maxmemory-policy", node.Options().Addr)
	}
	switch c := client.(type) {
	case *redis.Client:
		return check(ctx, c)
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, check)
	default:
		return fmt.Errorf("maxmemory-policy: a client of type %T is not supported", client)
	}
}
