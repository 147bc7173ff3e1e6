// Package etcdlock keeps leases on etcd: a queue of keys for each lock, one for each grant or waiter, each on an
// etcd lease of its own. The first in the queue holds the lock; the revision that created its key is its token.
//
// It settles that every grant cleans up after itself: the etcd lease's id follows from the grant id, so whatever
// became of a request, revoking that id removes what it may have left, and what comes late finds no lease. It
// refuses to share an etcd session between grants, which would make two grants of one process one holder.
package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// DefaultPrefix begins the name of every key.
const DefaultPrefix = "/holdfast/locks/"

// Each request is awaited for at most requestLimit and, where sending it again is safe, sent attempts times.
const (
	requestLimit = time.Second
	attempts     = 3
)

// Backend is a lease on etcd.
type Backend struct {
	client *clientv3.Client
	leases etcdserverpb.LeaseClient // does not send again by itself, unlike the client: a second revoke finds nothing
	prefix string
}

// New returns a back end under a prefix ([DefaultPrefix] if empty). The client stays the caller's. TTLs are rounded
// up to whole seconds, and by the server to one and a half election timeouts (2 s as it comes).
func New(client *clientv3.Client, prefix string) *Backend {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return &Backend{client: client, leases: etcdserverpb.NewLeaseClient(client.ActiveConnection()), prefix: prefix}
}

// Properties says what the lease promises.
func (*Backend) Properties() lock.Properties {
	return lock.Properties{
		Backend: "etcd", Clock: lock.ServerMonotonic, MinTTL: time.Second, Step: time.Second,
		Fencing: lock.EtcdRevision, FIFO: true, Wake: lock.Queued, Death: lock.AfterTTL,
		Restart: lock.Prolongs, Failover: lock.Consensus,
	}
}

// Fencing implements [lock.FencedBackend].
func (*Backend) Fencing() lock.TokenOrigin { return lock.EtcdRevision }

// queue is the prefix of the keys of one lock. The lock's name is escaped, so that no queue contains another.
func (b *Backend) queue(key string) string { return b.prefix + url.PathEscape(key) + "/" }

func (b *Backend) place(c lock.Claim) string { return b.queue(c.Key) + c.Owner.Grant }

// leaseID is the id of the etcd lease of a grant.
func leaseID(c lock.Claim) clientv3.LeaseID {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.Owner.Grant)) // never fails
	return clientv3.LeaseID(max(1, int64(h.Sum64()&math.MaxInt64)))
}

// errExpired: the place in the queue is gone, because its lease ran out while we could not reach etcd.
var errExpired = errors.New("the place in the queue expired")

// Acquire implements [lock.Backend].
func (b *Backend) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	if !c.Wait {
		return b.try(ctx, c)
	}
	for {
		g, err := b.enqueue(ctx, c)
		if !errors.Is(err, errExpired) {
			return g, err
		}
	}
}

// try takes the first place if there is none yet.
func (b *Backend) try(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	if taken, err := b.taken(ctx, c); taken || err != nil {
		return lock.Grant{}, err
	}
	empty := clientv3.Compare(clientv3.CreateRevision(b.queue(c.Key)).WithPrefix(), "=", 0)
	g, own, _, err := b.put(ctx, c, empty)
	if err != nil {
		return lock.Grant{}, err
	}
	if own == nil {
		return lock.Grant{}, b.leave(ctx, c, &lock.HeldError{})
	}
	g.Token = lock.Token(own.CreateRevision)
	return g, nil
}

// taken looks whether a claim that may not wait is worth a lease.
func (b *Backend) taken(ctx context.Context, c lock.Claim) (bool, error) {
	first, err := read(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, b.queue(c.Key), clientv3.WithFirstCreate()...)
	})
	if err != nil {
		return false, fmt.Errorf("etcd: %w", err)
	}
	if len(first.Kvs) == 0 || string(first.Kvs[0].Key) == b.place(c) {
		return false, nil
	}
	return true, &lock.HeldError{}
}

// enqueue takes the last place and waits until it is the first.
func (b *Backend) enqueue(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	absent := clientv3.Compare(clientv3.CreateRevision(b.place(c)), "=", 0)
	g, own, first, err := b.put(ctx, c, absent)
	if err != nil {
		return lock.Grant{}, err
	}
	g.Token = lock.Token(own.CreateRevision)
	if first.CreateRevision == own.CreateRevision {
		return g, nil
	}
	g.Waited = true
	err = b.wait(ctx, g)
	if err == nil {
		g, err = b.Renew(ctx, g) // the lease that counts begins now, and is still there
	}
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, lock.ErrLost):
		return lock.Grant{}, errExpired
	default:
		return lock.Grant{}, b.leave(ctx, c, err)
	}
}

// leave gives up a place in the queue before Acquire returns: when the holder releases, nobody waits there any more.
func (b *Backend) leave(ctx context.Context, c lock.Claim, why error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
	defer cancel()
	if err := b.Abandon(bounded, c); err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	return why
}

// put grants the etcd lease and, if the condition holds, puts the claim's key on it. It returns that key, nil if it
// is not there, and the first of the queue. Both requests may be sent again: the second finds what the first did.
func (b *Backend) put(ctx context.Context, c lock.Claim, condition clientv3.Cmp) (g lock.Grant, own, first *mvccpb.KeyValue, err error) {
	g = lock.Grant{Claim: c, Sent: time.Now(), Hold: c.Owner.Grant}
	response, err := again(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		var err error
		if g.Lasts, err = b.grant(ctx, c, &g.Sent); err != nil {
			return nil, err
		}
		look := []clientv3.Op{
			clientv3.OpGet(b.place(c)),
			clientv3.OpGet(b.queue(c.Key), clientv3.WithFirstCreate()...),
		}
		write := append([]clientv3.Op{clientv3.OpPut(b.place(c), c.Value, clientv3.WithLease(leaseID(c)))}, look...)
		return b.client.Txn(ctx).If(condition).Then(write...).Else(look...).Commit()
	})
	if err != nil {
		return g, nil, nil, fmt.Errorf("etcd: %w: %w", err, lock.ErrUnknownOutcome)
	}
	answers := response.Responses
	answers = answers[len(answers)-2:]
	if kvs := answers[0].GetResponseRange().Kvs; len(kvs) == 1 {
		own = kvs[0]
	}
	if kvs := answers[1].GetResponseRange().Kvs; len(kvs) == 1 {
		first = kvs[0]
	}
	return g, own, first, nil
}

// grant makes the etcd lease. One that exists is ours, made by a request whose answer was lost: it is renewed, since
// it has been running since then.
func (b *Backend) grant(ctx context.Context, c lock.Claim, sent *time.Time) (time.Duration, error) {
	*sent = time.Now()
	seconds := int64((c.TTL + time.Second - 1) / time.Second)
	response, err := b.leases.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: int64(leaseID(c)), TTL: seconds})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseExist) {
		*sent = time.Now()
		renewed, err := b.client.KeepAliveOnce(ctx, leaseID(c))
		if err != nil {
			return 0, err
		}
		return time.Duration(renewed.TTL) * time.Second, nil
	}
	if err != nil {
		return 0, err
	}
	return time.Duration(response.TTL) * time.Second, nil
}

// wait returns when nobody is before the grant in the queue, keeping its place alive meanwhile.
func (b *Backend) wait(ctx context.Context, g lock.Grant) error {
	alive, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan struct{})
	go func() { defer close(done); stop(b.keepAlive(alive, g)) }()
	defer func() { stop(nil); <-done }()
	for {
		before, revision, err := b.predecessor(alive, g)
		if err != nil || before == "" {
			return b.ended(ctx, alive, err)
		}
		if err := b.awaitDelete(alive, before, revision); err != nil {
			return b.ended(ctx, alive, err)
		}
	}
}

// ended explains why waiting ended: by the caller, by the loss of the place, or by an error.
func (b *Backend) ended(ctx, alive context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case alive.Err() != nil && err != nil:
		return context.Cause(alive)
	default:
		return err
	}
}

// keepAlive renews the lease of a waiter until ctx ends or the lease is gone.
func (b *Backend) keepAlive(ctx context.Context, g lock.Grant) error {
	tick := time.NewTicker(g.Lasts / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, g.Lasts/3)
		_, err := b.client.KeepAliveOnce(bounded, leaseID(g.Claim))
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return lock.ErrLost
		}
	}
}

// predecessor is the key right before the grant's in the queue, empty if it is the first.
func (b *Backend) predecessor(ctx context.Context, g lock.Grant) (string, int64, error) {
	before := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(int64(g.Token)-1), clientv3.WithKeysOnly())
	response, err := read(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).Then(clientv3.OpGet(b.place(g.Claim)), clientv3.OpGet(b.queue(g.Key), before...)).Commit()
	})
	if err != nil {
		return "", 0, err
	}
	own := response.Responses[0].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != int64(g.Token) {
		return "", 0, lock.ErrLost
	}
	if kvs := response.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		return string(kvs[0].Key), response.Header.Revision, nil
	}
	return "", response.Header.Revision, nil
}

// awaitDelete returns when the key was deleted after the revision, or when it is worth looking again.
func (b *Backend) awaitDelete(ctx context.Context, key string, revision int64) error {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range b.client.Watch(watching, key, clientv3.WithRev(revision+1), clientv3.WithFilterPut()) {
		if len(response.Events) > 0 {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return pause(ctx, 100*time.Millisecond) // the watch broke, or its revision was compacted
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	g.Sent = time.Now()
	renewed, err := b.client.KeepAliveOnce(ctx, leaseID(g.Claim))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return lock.Grant{}, lock.ErrLost
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("etcd: %w", err)
	}
	g.Lasts = time.Duration(renewed.TTL) * time.Second
	// The lease is there; the key could still have been removed by an operator.
	present, err := b.client.Get(ctx, b.place(g.Claim), clientv3.WithKeysOnly())
	if err != nil {
		return lock.Grant{}, fmt.Errorf("etcd: %w", err)
	}
	if len(present.Kvs) == 0 || present.Kvs[0].CreateRevision != int64(g.Token) {
		return lock.Grant{}, lock.ErrLost
	}
	return g, nil
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, g lock.Grant) error {
	_, err := b.leases.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: int64(leaseID(g.Claim))})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return lock.ErrLost
	}
	if err != nil {
		return fmt.Errorf("etcd: %w: %w", lock.ErrUnknownOutcome, err)
	}
	return nil
}

// Abandon implements [lock.Backend]. A key that comes late finds no lease to be put on.
func (b *Backend) Abandon(ctx context.Context, c lock.Claim) error {
	err := b.Release(ctx, lock.Grant{Claim: c})
	if errors.Is(err, lock.ErrLost) {
		return nil
	}
	return err
}

// maxListed bounds how many places in queues one List reads.
const maxListed = 10_000

// List implements [lock.Backend].
func (b *Backend) List(ctx context.Context, limit int) ([]lock.Held, error) {
	response, err := read(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, b.prefix, clientv3.WithPrefix(), clientv3.WithLimit(maxListed))
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: list: %w", err)
	}
	queues := make(map[string][]*mvccpb.KeyValue)
	for _, kv := range response.Kvs {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), b.prefix), "/")
		queues[name] = append(queues[name], kv)
	}
	var all []lock.Held
	for name, places := range queues {
		key, err := url.PathUnescape(name)
		if err != nil || len(all) == limit {
			continue
		}
		h, err := b.describe(ctx, key, places)
		if err != nil {
			return all, fmt.Errorf("etcd: list: %w", err)
		}
		all = append(all, h)
	}
	return all, nil
}

func (b *Backend) describe(ctx context.Context, key string, places []*mvccpb.KeyValue) (lock.Held, error) {
	first := places[0]
	for _, place := range places {
		if place.CreateRevision < first.CreateRevision {
			first = place
		}
	}
	h := lock.NewHeld(key, string(first.Value))
	h.Token, h.Waiting = lock.Token(first.CreateRevision), len(places)-1
	ttl, err := read(ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return b.client.TimeToLive(ctx, clientv3.LeaseID(first.Lease))
	})
	if err != nil {
		return h, err
	}
	h.Remaining = max(0, time.Duration(ttl.TTL)*time.Second)
	return h, nil
}

// Close implements [lock.Backend].
func (*Backend) Close() error { return nil }

// read asks with the limit of a request.
func read[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return ask(bounded)
}

// again sends a request that may be sent again, until it is answered, a few times at most. One that is on its way
// is not cancelled with ctx, so that its outcome is usually known.
func again[T any](ctx context.Context, send func(context.Context) (T, error)) (T, error) {
	for try := 1; ; try++ {
		answer, err := read(context.WithoutCancel(ctx), send)
		if err == nil || try == attempts || ctx.Err() != nil {
			return answer, err
		}
		if paused := pause(ctx, 20*time.Millisecond); paused != nil {
			return answer, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
