// Package zklock keeps leases on ZooKeeper: a queue of ephemeral sequential nodes for each lock, one for each grant
// or waiter. The first in the queue holds the lock; the zxid that created its node is its token.
//
// It settles what is a lease where there are only sessions: all grants of a back end share one session, and each is
// confirmed by writes of its own; a grant that nobody confirms any more is removed though the session lives. It
// refuses sequence numbers as tokens: they begin anew when the parent node is removed.
package zklock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// DefaultRoot is the node under which all locks are.
const DefaultRoot = "/holdfast/locks"

// Config says how to keep leases.
type Config struct {
	Root    string        // DefaultRoot if empty
	Session time.Duration // how long a dead holder keeps its keys, 10 s if 0; the server bounds it to 2 to 20 of its ticks
}

// Backend is a lease on ZooKeeper.
type Backend struct {
	config  Config
	session *session
	closing context.Context
	close   context.CancelFunc

	mu       sync.Mutex
	places   map[string]*place        // of grants, by grant id; guarded by mu
	creating map[string]chan struct{} // by grant id, closed when the request has an answer; guarded by mu
}

// place is the node of a grant.
type place struct {
	path  string
	timer *time.Timer // removes the node when the lease ends
}

// New connects to an ensemble. ZooKeeper 3.5.3 or newer is needed. The TTL of a lease is that of the session; a
// longer one is shortened to it.
func New(servers []string, c Config) (*Backend, error) {
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	if c.Session == 0 {
		c.Session = 10 * time.Second
	}
	session, err := connect(servers, c.Session)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	b := &Backend{config: c, session: session, places: make(map[string]*place), creating: make(map[string]chan struct{})}
	b.closing, b.close = context.WithCancel(context.Background())
	return b, nil
}

// Properties says what the lease promises.
func (b *Backend) Properties() lock.Properties {
	return lock.Properties{
		Backend: "zookeeper", Clock: lock.ServerMonotonic, MinTTL: max(lock.MinTTL, b.config.Session), Step: b.config.Session,
		Fencing: lock.ZooKeeperZxid, FIFO: true, Wake: lock.Queued, Death: lock.AfterTTL,
		Restart: lock.Prolongs, Failover: lock.Consensus,
	}
}

// Fencing implements [lock.FencedBackend].
func (*Backend) Fencing() lock.TokenOrigin { return lock.ZooKeeperZxid }

// queue is the parent node of one lock.
func (b *Backend) queue(key string) string {
	name := url.PathEscape(key)
	if strings.HasPrefix(name, ".") { // a node may not be called . or ..
		name = "%2E" + name[1:]
	}
	return b.config.Root + "/" + name
}

// sequence is the number that ZooKeeper appended to the name of a place.
func sequence(name string) int64 {
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	if err != nil {
		return -1 // not ours: whatever it is, it is not passed over
	}
	return n
}

func mine(c lock.Claim) func(name string) bool {
	return func(name string) bool { return strings.HasPrefix(name, c.Owner.Grant+".") }
}

var (
	errExpired = errors.New("the place in the queue expired")
	openToAll  = zk.WorldACL(zk.PermAll)
)

// attempts is how often in a row ZooKeeper may fail to answer; pauses between them let the client reconnect.
const (
	attempts     = 4
	pauseBetween = 50 * time.Millisecond
)

// Acquire implements [lock.Backend].
func (b *Backend) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	for {
		g, err := b.enqueue(ctx, c)
		if errors.Is(err, errExpired) && ctx.Err() == nil {
			continue
		}
		if err == nil || errors.Is(err, errClear) {
			return g, err
		}
		return g, fmt.Errorf("zookeeper: %w: %w", err, lock.ErrUnknownOutcome)
	}
}

// errClear marks an error after which nothing is left of the claim.
var errClear = errors.New("nothing is left in the queue")

// enqueue takes the last place and, if the claim may wait, waits until it is the first.
func (b *Backend) enqueue(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	if !c.Wait {
		if taken, err := b.taken(ctx, c); taken || err != nil {
			return lock.Grant{}, err
		}
	}
	node, err := b.enter(ctx, c)
	if err != nil {
		return lock.Grant{}, err
	}
	g := lock.Grant{Claim: c, Hold: c.Owner.Grant}
	if g.Waited, err = b.wait(ctx, c, node); err != nil {
		return lock.Grant{}, b.leave(ctx, node, err)
	}
	b.remember(c, node)
	g, err = b.Renew(ctx, g) // proves that the session lives, and tells the token
	if errors.Is(err, lock.ErrLost) {
		b.forget(c)
		return lock.Grant{}, errExpired
	}
	return g, err
}

// leave gives up a place in the queue before Acquire returns: when the holder releases, nobody waits there any more.
func (b *Backend) leave(ctx context.Context, node string, why error) error {
	if errors.Is(why, errExpired) {
		return why
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := b.remove(bounded, node); err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	return fmt.Errorf("%w; %w", why, errClear)
}

// enter takes the last place, or finds the one that the claim has.
func (b *Backend) enter(ctx context.Context, c lock.Claim) (string, error) {
	if p := b.place(c); p != nil {
		return p.path, nil
	}
	return b.create(ctx, c)
}

// remember notes the place of a grant, and removes it when the lease ends.
func (b *Backend) remember(c lock.Claim, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.places[c.Owner.Grant] == nil {
		p := &place{path: node}
		p.timer = time.AfterFunc(b.session.lasts(), func() { b.expire(p) })
		b.places[c.Owner.Grant] = p
	}
}

// taken looks whether a claim that may not wait has any chance.
func (b *Backend) taken(ctx context.Context, c lock.Claim) (bool, error) {
	names, err := b.queued(ctx, c.Key)
	if err != nil || len(names) == 0 || slices.ContainsFunc(names, mine(c)) {
		return false, err
	}
	return true, fmt.Errorf("%w; %w", &lock.HeldError{}, errClear)
}

// queued lists the names in the queue of a key, asking again when the connection breaks.
func (b *Backend) queued(ctx context.Context, key string) ([]string, error) {
	for try := 1; ; try++ {
		names, err := b.children(ctx, b.queue(key))
		if err == nil || try == attempts || !broken(err) {
			return names, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// children lists a node's children; a node that is not there has none.
func (b *Backend) children(ctx context.Context, node string) ([]string, error) {
	names, err := call(ctx, b.session, func() ([]string, error) {
		names, _, err := b.session.conn.Children(node)
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// create takes the last place in the queue. If an answer was lost it looks for what the request may have left.
func (b *Backend) create(ctx context.Context, c lock.Claim) (string, error) {
	for try := 1; ; try++ {
		node, err := b.createOnce(ctx, c)
		switch {
		case err == nil:
			return node, nil
		case errors.Is(err, zk.ErrNoNode):
			err = b.createParents(ctx, b.queue(c.Key))
		case broken(err):
			if node, found := b.find(ctx, c); found == nil && node != "" {
				return node, nil
			}
		}
		if err != nil && !broken(err) || try == attempts {
			return "", err
		}
		if err := pause(ctx); err != nil {
			return "", err
		}
	}
}

// createOnce sends the request and remembers it until it is answered, so that Abandon can wait for it.
func (b *Backend) createOnce(ctx context.Context, c lock.Claim) (string, error) {
	answered := make(chan struct{})
	b.mu.Lock()
	b.creating[c.Owner.Grant] = answered
	b.mu.Unlock()
	return call(ctx, b.session, func() (string, error) {
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.creating, c.Owner.Grant)
			close(answered)
		}()
		name := b.queue(c.Key) + "/" + c.Owner.Grant + "."
		return b.session.conn.Create(name, []byte(c.Value), zk.FlagEphemeralSequential, openToAll)
	})
}

// createParents makes the nodes above a queue, and the queue, which ZooKeeper removes when it is empty for a while.
func (b *Backend) createParents(ctx context.Context, queue string) error {
	_, err := call(ctx, b.session, func() (string, error) {
		names := strings.Split(b.config.Root, "/")[1:]
		for i := range names {
			above := "/" + strings.Join(names[:i+1], "/")
			_, err := b.session.conn.Create(above, nil, zk.FlagPersistent, openToAll)
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return "", err
			}
		}
		return b.session.conn.CreateContainer(queue, nil, zk.FlagContainer, openToAll)
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// find returns the node of a claim, empty if there is none, as of all that was done before.
func (b *Backend) find(ctx context.Context, c lock.Claim) (string, error) {
	queue := b.queue(c.Key)
	// A server may lag behind the one that did what we look for; sync lets it catch up.
	if _, err := call(ctx, b.session, func() (string, error) { return b.session.conn.Sync(queue) }); err != nil {
		return "", err
	}
	names, err := b.children(ctx, queue)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(names, mine(c)); i >= 0 {
		return queue + "/" + names[i], nil
	}
	return "", nil
}

// wait returns when the node is the first in its queue, and whether it was not at once.
func (b *Backend) wait(ctx context.Context, c lock.Claim, node string) (waited bool, err error) {
	for {
		before, err := b.predecessor(ctx, c, node)
		if before == "" || err != nil {
			return waited, err
		}
		if !c.Wait {
			return true, &lock.HeldError{}
		}
		waited = true
		changed, err := call(ctx, b.session, func() (<-chan zk.Event, error) {
			_, _, changed, err := b.session.conn.GetW(before) // unlike ExistsW leaves no watch on what is gone
			return changed, err
		})
		if errors.Is(err, zk.ErrNoNode) || broken(err) {
			if err := pause(ctx); err != nil {
				return waited, err
			}
			continue
		}
		if err != nil {
			return waited, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return waited, ctx.Err()
		}
	}
}

// predecessor is the node right before a place, empty if that is the first.
func (b *Backend) predecessor(ctx context.Context, c lock.Claim, node string) (string, error) {
	names, err := b.queued(ctx, c.Key)
	if err != nil {
		return "", err
	}
	slices.SortFunc(names, func(x, y string) int { return int(sequence(x) - sequence(y)) })
	i := slices.Index(names, path.Base(node))
	switch {
	case i < 0:
		return "", errExpired
	case i == 0:
		return "", nil
	default:
		return b.queue(c.Key) + "/" + names[i-1], nil
	}
}

// Renew implements [lock.Backend]. It writes: a read could be answered by a server that has lost the others, which
// have ended the session.
func (b *Backend) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	p := b.place(g.Claim)
	if p == nil {
		return lock.Grant{}, lock.ErrLost
	}
	g.Sent = time.Now()
	stat, err := call(ctx, b.session, func() (*zk.Stat, error) { return b.session.conn.Set(p.path, []byte(g.Value), -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired):
		return lock.Grant{}, lock.ErrLost
	case err != nil:
		return lock.Grant{}, fmt.Errorf("zookeeper: %w", err)
	}
	g.Token, g.Lasts = lock.Token(stat.Czxid), b.session.lasts()
	if !p.timer.Reset(time.Until(g.Sent.Add(g.Lasts))) { // it is being removed
		return lock.Grant{}, lock.ErrLost
	}
	return g, nil
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, g lock.Grant) error {
	p := b.place(g.Claim)
	if p == nil {
		return lock.ErrLost
	}
	err := b.delete(ctx, p.path)
	switch {
	case err == nil:
		b.forget(g.Claim)
		return nil
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired):
		b.forget(g.Claim)
		return lock.ErrLost
	default:
		return fmt.Errorf("zookeeper: %w: %w", lock.ErrUnknownOutcome, err)
	}
}

func (b *Backend) delete(ctx context.Context, node string) error {
	_, err := call(ctx, b.session, func() (struct{}, error) { return struct{}{}, b.session.conn.Delete(node, -1) })
	return err
}

// remove deletes a node that holds nothing; the error is an unknown outcome.
func (b *Backend) remove(ctx context.Context, node string) error {
	err := b.delete(ctx, node)
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrSessionExpired) {
		return nil
	}
	return fmt.Errorf("%w: %w", lock.ErrUnknownOutcome, err)
}

// Abandon implements [lock.Backend].
func (b *Backend) Abandon(ctx context.Context, c lock.Claim) error {
	b.mu.Lock()
	answered := b.creating[c.Owner.Grant]
	b.mu.Unlock()
	if answered != nil {
		select {
		case <-answered:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	node, err := b.find(ctx, c)
	if err != nil {
		return fmt.Errorf("zookeeper: %w", err)
	}
	if node != "" {
		err = b.remove(ctx, node)
	}
	if err == nil {
		b.forget(c)
	}
	return err
}

// expire removes the node of a lease that was not renewed. The session lives, perhaps, so ZooKeeper would not.
func (b *Backend) expire(p *place) {
	for b.closing.Err() == nil {
		ctx, cancel := context.WithTimeout(b.closing, time.Second)
		err := b.remove(ctx, p.path)
		cancel()
		if err == nil {
			return
		}
		_ = pause(b.closing) // looked at by the loop
	}
}

func (b *Backend) place(c lock.Claim) *place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.places[c.Owner.Grant]
}

func (b *Backend) forget(c lock.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.places[c.Owner.Grant]; p != nil {
		p.timer.Stop()
		delete(b.places, c.Owner.Grant)
	}
}

// List implements [lock.Backend].
func (b *Backend) List(ctx context.Context, limit int) ([]lock.Held, error) {
	queues, err := b.children(ctx, b.config.Root)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: list: %w", err)
	}
	var all []lock.Held
	for _, name := range queues {
		key, err := url.PathUnescape(name)
		if err != nil || len(all) == limit {
			continue
		}
		h, err := b.describe(ctx, key)
		if err != nil {
			return all, fmt.Errorf("zookeeper: list: %w", err)
		}
		if h.Value != "" {
			all = append(all, h)
		}
	}
	return all, nil
}

// describe returns the first place of a queue, zero if there is none.
func (b *Backend) describe(ctx context.Context, key string) (lock.Held, error) {
	names, err := b.children(ctx, b.queue(key))
	if err != nil || len(names) == 0 {
		return lock.Held{}, err
	}
	first := slices.MinFunc(names, func(x, y string) int { return int(sequence(x) - sequence(y)) })
	type node struct {
		value []byte
		stat  *zk.Stat
	}
	holder, err := call(ctx, b.session, func() (n node, err error) {
		n.value, n.stat, err = b.session.conn.Get(b.queue(key) + "/" + first)
		return n, err
	})
	if errors.Is(err, zk.ErrNoNode) { // released meanwhile
		return lock.Held{}, nil
	}
	if err != nil {
		return lock.Held{}, err
	}
	h := lock.NewHeld(key, string(holder.value))
	h.Token, h.Waiting = lock.Token(holder.stat.Czxid), len(names)-1
	return h, nil
}

// Close implements [lock.Backend]: it ends the session, and with it frees what is still held.
func (b *Backend) Close() error {
	b.close()
	b.mu.Lock()
	for _, p := range b.places {
		p.timer.Stop()
	}
	b.mu.Unlock()
	b.session.close()
	return nil
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(pauseBetween)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
