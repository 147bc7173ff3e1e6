// Package redislock keeps leases on Redis: on one server (or primary, or Cluster), optionally confirmed by replicas,
// re-entrant, or on the majority of independent servers (Redlock).
//
// It settles how a grant is one key with an expiry, changed only by scripts that compare the owner whole. It refuses
// to number grants: a Redis counter does not survive what a Redis lease does not survive. [lock.WithTokens] numbers
// them from a place that does.
package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

//go:embed acquire.lua
var acquireSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

var (
	acquireScript = redis.NewScript(acquireSource)
	renewScript   = redis.NewScript(renewSource)
	releaseScript = redis.NewScript(releaseSource)
)

// DefaultPrefix begins the name of every key.
const DefaultPrefix = "lock:"

// Config says how to keep leases. The zero value is a plain lease under [DefaultPrefix].
type Config struct {
	Prefix string // of all keys; without braces
	// Confirm is how many replicas have to confirm a grant and every renewal (WAIT) before they count. With all
	// replicas a failover keeps the lease. 0: none, and a failover may forget it.
	Confirm int
	// ConfirmLimit is how long a confirmation may take; 500 ms if 0.
	ConfirmLimit time.Duration
}

// Backend is a lease on one Redis server or Cluster.
type Backend struct {
	config  Config
	names   names
	server  *node                // nil on a Cluster
	cluster *redis.ClusterClient // nil on a single server
	watcher watcher
	poller  lock.Poller

	describe describer

	mu    sync.Mutex
	nodes map[*redis.Client]*node // of a Cluster; guarded by mu
}

// New returns a back end on a Redis server (a *redis.Client, of a sentinel setup too) or a Cluster
// (*redis.ClusterClient). The client must not retry by itself and must pass deadlines on to its sockets:
// MaxRetries -1, ContextTimeoutEnabled.
func New(client redis.UniversalClient, c Config) (*Backend, error) {
	names, err := newNames(c.Prefix)
	if err != nil {
		return nil, err
	}
	if c.ConfirmLimit == 0 {
		c.ConfirmLimit = 500 * time.Millisecond
	}
	b := &Backend{config: c, names: names, describe: describe, nodes: make(map[*redis.Client]*node)}
	b.watcher.subscribe = func() *redis.PubSub { return client.Subscribe(context.Background()) }
	switch client := client.(type) {
	case *redis.Client:
		b.server = &node{client: client}
		return b, checkOptions(client.Options().MaxRetries, client.Options().ContextTimeoutEnabled)
	case *redis.ClusterClient:
		b.cluster = client
		return b, checkOptions(client.Options().MaxRetries, client.Options().ContextTimeoutEnabled)
	default:
		return nil, fmt.Errorf("%w: a %T is neither a Redis server nor a Cluster", lock.ErrInvalid, client)
	}
}

// Properties says what the lease promises.
func (b *Backend) Properties() lock.Properties {
	p := lock.Properties{
		Backend: "redis", Clock: lock.ServerWall, MinTTL: lock.MinTTL, Wake: lock.Published,
		Death: lock.AfterTTL, Restart: lock.AsStorage, Failover: lock.MayForget,
	}
	if b.config.Confirm > 0 {
		p.Backend, p.Failover = "redis+wait", lock.AsReplicated
	}
	return p
}

// Acquire implements [lock.Backend].
func (b *Backend) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	return b.poller.Acquire(ctx, c, lock.Source{Try: b.try, Watch: b.watch})
}

func (b *Backend) watch(key string) (<-chan struct{}, func()) {
	return b.watcher.watch(b.names.lock(key))
}

func (b *Backend) try(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	sent := time.Now()
	answer, err := b.write(ctx, acquireScript, b.names.both(c), c.Value, c.TTL.Milliseconds())
	if errors.Is(err, errUnconfirmed) && answer == 0 {
		return lock.Grant{}, b.takeBack(ctx, c, err)
	}
	if err != nil && !errors.Is(err, errUnconfirmed) {
		return lock.Grant{}, fmt.Errorf("redis: %w", err)
	}
	if err := granted(answer); err != nil {
		return lock.Grant{}, err
	}
	return lock.Grant{Claim: c, Sent: sent, Lasts: c.TTL, Hold: c.Owner.Grant}, nil
}

// takeBack frees a grant that a failover would forget.
func (b *Backend) takeBack(ctx context.Context, c lock.Claim, why error) error {
	if err := b.free(ctx, c, 0); err != nil && !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("redis: %w: %w: %w", why, lock.ErrUnknownOutcome, err)
	}
	return fmt.Errorf("redis: %w", why)
}

// granted reads the answer of acquire.lua.
func granted(answer int64) error {
	switch {
	case answer == 0:
		return nil
	case answer < 0:
		return fmt.Errorf("the claim was given up: %w", lock.ErrLost)
	default:
		return &lock.HeldError{Remaining: time.Duration(answer) * time.Millisecond}
	}
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	sent := time.Now()
	answer, err := b.write(ctx, renewScript, []string{b.names.lock(g.Key)}, g.Value, g.Claim.TTL.Milliseconds())
	if answer == 0 && (err == nil || errors.Is(err, errUnconfirmed)) {
		return lock.Grant{}, lock.ErrLost
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redis: %w", err)
	}
	g.Sent, g.Lasts = sent, g.Claim.TTL
	return g, nil
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, g lock.Grant) error {
	mark := time.Duration(0)
	if g.Uncertain {
		mark = g.Claim.TTL
	}
	return b.free(ctx, g.Claim, mark)
}

// Abandon implements [lock.Backend].
func (b *Backend) Abandon(ctx context.Context, c lock.Claim) error {
	err := b.free(ctx, c, c.TTL)
	if errors.Is(err, lock.ErrLost) {
		return nil
	}
	return err
}

// free releases a claim, and keeps late requests of it from holding the key for the time of mark.
func (b *Backend) free(ctx context.Context, c lock.Claim, mark time.Duration) error {
	answer, err := b.run(ctx, releaseScript, b.names.both(c), c.Value, mark.Milliseconds())
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if answer != 1 {
		return lock.ErrLost
	}
	return nil
}

// write runs a script whose effect has to survive a failover, if that is asked for.
func (b *Backend) write(ctx context.Context, script *redis.Script, keys []string, args ...any) (int64, error) {
	if b.config.Confirm == 0 {
		return b.run(ctx, script, keys, args...)
	}
	return b.on(ctx, keys[0], func(n *node) (int64, error) {
		return n.confirmed(ctx, b.config.Confirm, b.config.ConfirmLimit, script, keys, args...)
	})
}

// run runs a script where its first key is.
func (b *Backend) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (int64, error) {
	return b.on(ctx, keys[0], func(n *node) (int64, error) { return number(n.run(ctx, script, keys, args...)) })
}

func (b *Backend) on(ctx context.Context, key string, call func(*node) (int64, error)) (int64, error) {
	n, err := b.node(ctx, key)
	if err != nil {
		return 0, err
	}
	answer, err := call(n)
	return answer, b.noteMoved(ctx, err)
}

// noteMoved makes the next try go to the right node of a Cluster.
func (b *Backend) noteMoved(ctx context.Context, err error) error {
	if b.cluster != nil && moved(err) {
		b.cluster.ReloadState(ctx)
	}
	return err
}

// node is the server that has the key. In a Cluster it is asked directly, because the cluster client would send a
// request again by itself when its reply is lost.
func (b *Backend) node(ctx context.Context, key string) (*node, error) {
	if b.server != nil {
		return b.server, nil
	}
	client, err := b.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[client]
	if n == nil {
		n = &node{client: client}
		b.nodes[client] = n
	}
	return n, nil
}

// Close implements [lock.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.watcher.close()}
	if b.server != nil {
		errs = append(errs, b.server.close())
	}
	for _, n := range b.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// names is the one place where keys get their names: prefix{key}, where the braces are the hash tag, so that all
// keys of a lock are in one slot of a Cluster.
type names struct{ prefix string }

func newNames(prefix string) (names, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if strings.ContainsAny(prefix, "{}*?[]^\\") {
		return names{}, fmt.Errorf("%w: the prefix %q has braces or pattern characters", lock.ErrInvalid, prefix)
	}
	return names{prefix}, nil
}

func (n names) lock(key string) string {
	return n.prefix + "{" + strings.ReplaceAll(url.PathEscape(key), "%2F", "/") + "}"
}

// both is the key of a claim's lock, and the one that marks its grant as given up, which lives as long as a request
// may be late.
func (n names) both(c lock.Claim) []string {
	key := n.lock(c.Key)
	return []string{key, key + ":given-up:" + c.Owner.Grant}
}

// pattern matches the locks, and not their marks.
func (n names) pattern() string { return n.prefix + "{*}" }

// key is the inverse of lock.
func (n names) key(name string) (string, bool) {
	name, hasPrefix := strings.CutPrefix(name, n.prefix+"{")
	name, hasEnd := strings.CutSuffix(name, "}")
	key, err := url.PathUnescape(name)
	return key, hasPrefix && hasEnd && err == nil
}
