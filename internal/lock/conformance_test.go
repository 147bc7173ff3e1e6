package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// tokenBook remembers the tokens of leases, so that tests can treat fenced and bare lockers alike.
type tokenBook struct{ byLease sync.Map }

func (b *tokenBook) note(f *lock.Fenced) { b.byLease.Store(f.Lease, f.Fence()) }

func (b *tokenBook) of(l *lock.Lease) lock.Token {
	if token, ok := b.byLease.Load(l); ok {
		return token.(lock.Token)
	}
	return 0
}

func mustAcquire(t *testing.T, p *party, key string, options ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := acquire(t.Context(), p, key, options...)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return lease
}

// acquire waits for the key as long as a test is patient.
func acquire(ctx context.Context, p *party, key string, options ...lock.Option) (*lock.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return insist(ctx, func() (*lock.Lease, error) { return p.acquire(ctx, key, options...) })
}

func mustRelease(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// mustBeFree proves that nothing holds a key and nothing waits for it.
func mustBeFree(t *testing.T, p *party, key string) {
	t.Helper()
	lease, err := p.try(t.Context(), key)
	if err != nil {
		t.Fatalf("the key is not free: %v", err)
	}
	mustRelease(t, lease)
}

// becomesFree waits for the work that goes on in the background after an unclear acquire.
func becomesFree(t *testing.T, p *party, key string, limit time.Duration) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		lease, err := p.try(t.Context(), key)
		if err == nil {
			mustRelease(t, lease)
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the key is not free after %s: %v", limit, err)
		}
	}
}

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("did not happen: %s", what)
	}
}

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		const parties, rounds = 4, 5
		key := newKey()
		var inside atomic.Int32
		var shared atomic.Int32 // read and then written: only the lock keeps the two together
		var workers sync.WaitGroup
		for range parties {
			p := w.join(t)
			workers.Go(func() {
				for range rounds {
					err := p.do(t.Context(), key, func(context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two holders")
						}
						shared.Store(shared.Load() + 1)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Errorf("do: %v", err)
					}
				}
			})
		}
		workers.Wait()
		if n := shared.Load(); n != parties*rounds {
			t.Errorf("the work was counted %d times, want %d", n, parties*rounds)
		}
	})
}

func TestHeldKeyIsRefusedAndFreedKeyIsGranted(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		first, second := w.join(t), w.join(t)
		key := newKey()
		lease := mustAcquire(t, first, key)
		if _, err := second.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("try a held key: %v", err)
		}
		started := time.Now()
		if _, err := second.acquire(t.Context(), key, lock.Wait(100*time.Millisecond)); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("wait for a held key: %v", err)
		}
		if waited := time.Since(started); waited < 100*time.Millisecond {
			t.Fatalf("waited only %s", waited)
		}
		mustRelease(t, lease)
		becomesFree(t, second, key, endless/3) // the wait may have ended before a busy server answered
	})
}

// A key of another name is another lock, even if one begins like the other.
func TestKeysThatBeginAlikeAreSeparate(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		key := newKey()
		defer mustRelease(t, mustAcquire(t, p, key))
		for _, other := range []string{key + "0", key + "/0", key + "}", strings.ToUpper(key)} {
			lease, err := p.try(t.Context(), other)
			if err != nil {
				t.Fatalf("%q while %q is held: %v", other, key, err)
			}
			mustRelease(t, lease)
		}
	})
}

func TestWaiterIsWokenByRelease(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		first, second := w.joinFor(t, endless), w.join(t)
		key := newKey()
		lease := mustAcquire(t, first, key)
		var options []lock.Option
		if second.backend.Properties().Wake != lock.Polled { // then it would not look by itself in time either
			options = append(options, lock.Pause(lock.Backoff{Min: endless, Max: endless}))
		}
		granted := make(chan time.Time)
		go func() {
			waiter, err := second.acquire(t.Context(), key, options...)
			if err != nil {
				t.Errorf("acquire: %v", err)
				close(granted)
				return
			}
			granted <- time.Now()
			mustReleaseAsync(t, waiter)
			close(granted)
		}()
		waits(t, first, key)
		released := time.Now()
		mustRelease(t, lease)
		at, ok := <-granted
		if !ok {
			return
		}
		if took := at.Sub(released); took > endless/3 {
			t.Errorf("the waiter was granted the key %s after its release", took)
		}
		<-granted
	})
}

func mustReleaseAsync(t *testing.T, l *lock.Lease) {
	if err := l.Release(); err != nil {
		t.Errorf("release: %v", err)
	}
}

// waits returns when somebody waits for the key, as far as the back end tells.
func waits(t *testing.T, p *party, key string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		h := find(t, p, key)
		if h == nil {
			t.Fatal("the key is not held")
		}
		if h.Waiting > 0 {
			return
		}
		if h.Waiting < 0 { // not told: all there is to go by is time
			time.Sleep(200 * time.Millisecond) //nolint:forbidigo // there is no signal
			return
		}
	}
	t.Fatal("nobody waits")
}

func find(t *testing.T, p *party, key string) *lock.Held {
	t.Helper()
	held, err := p.list(t.Context(), 10_000)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	if i := slices.IndexFunc(held, func(h lock.Held) bool { return h.Key == key }); i >= 0 {
		return &held[i]
	}
	return nil
}

func TestListShowsWhatIsHeld(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		key := newKey()
		if h := find(t, p, key); h != nil {
			t.Fatalf("a free key is listed: %+v", h)
		}
		lease := mustAcquire(t, p, key, lock.Meta("daily settle/2026 ü"), lock.TTL(20*time.Second))
		h := find(t, p, key)
		if h == nil {
			t.Fatal("a held key is not listed")
		}
		if h.Value != lease.Owner() || h.Owner.Meta != "daily settle/2026 ü" || h.Owner.Host == "" || h.Owner.PID == 0 {
			t.Errorf("owner: %+v, want %s", h, lease.Owner())
		}
		if h.Token != p.token(lease) {
			t.Errorf("token %d, want %d", h.Token, p.token(lease))
		}
		if age := time.Since(h.Since); age < 0 || age > patience {
			t.Errorf("held since %s", h.Since)
		}
		if h.Remaining < 0 || h.Remaining > 21*time.Second {
			t.Errorf("%s remaining", h.Remaining)
		}
		mustRelease(t, lease)
		if h := find(t, p, key); h != nil {
			t.Errorf("a released key is listed: %+v", h)
		}
	})
}

func TestRenewalKeepsTheKeyBeyondItsTTL(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		first, second := w.joinFor(t, 2*time.Second), w.join(t)
		key := newKey()
		lease := mustAcquire(t, first, key)
		for end := time.Now().Add(first.ttl * 3 / 2); time.Now().Before(end); time.Sleep(first.ttl / 10) {
			if _, err := second.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
				t.Fatalf("a renewed lease was not held: %v", err)
			}
			if err := lease.Err(); err != nil {
				t.Fatalf("a renewed lease ended: %v", err)
			}
		}
		mustRelease(t, lease)
		mustBeFree(t, second, key)
	})
}

// A lease that is not renewed ends for its holder first, then for the others, and soon.
func TestUnrenewedLeaseEnds(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		first, second := w.joinFor(t, brief), w.join(t)
		key := newKey()
		lease := mustAcquire(t, first, key, lock.NoRenew())
		bound, cancel := lease.Bind(t.Context())
		defer cancel()
		next := mustAcquire(t, second, key)
		granted := time.Now()
		// How much earlier its ctx ends is measured where the machine is quiet: TestPartitionedHolderStopsBeforeTheNextStarts.
		if early := granted.Sub(lease.Deadline()); early <= 0 {
			t.Errorf("another held the key %s before the holder's deadline", -early)
		}
		within(t, "the end of the bound ctx", bound.Done())
		if !errors.Is(context.Cause(bound), lock.ErrLost) {
			t.Errorf("cause: %v", context.Cause(bound))
		}
		within(t, "lost", lease.Lost())
		if limit := first.ttl + second.backend.Properties().Step + 10*time.Second; granted.Sub(lease.Deadline()) > limit {
			t.Errorf("the key was free only %s after the deadline", granted.Sub(lease.Deadline()))
		}
		// The late release touches nothing of the new holder, however often it is called.
		for range 2 {
			if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
				t.Errorf("release of a lost lease: %v", err)
			}
		}
		if _, err := first.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("the new holder lost the key to a late release: %v", err)
		}
		mustRelease(t, next)
	})
}

func TestReleaseIsIdempotent(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		key := newKey()
		lease := mustAcquire(t, p, key)
		bound, cancel := lease.Bind(t.Context())
		defer cancel()
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() { mustReleaseAsync(t, lease) })
		}
		callers.Wait()
		next := mustAcquire(t, p, key)
		if err := lease.Release(); err != nil { // a retried unlock
			t.Errorf("release again: %v", err)
		}
		if _, err := p.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a retried release freed a newer lease: %v", err)
		}
		within(t, "the end of the bound ctx", bound.Done())
		if !errors.Is(context.Cause(bound), lock.ErrReleased) || !errors.Is(lease.Err(), lock.ErrReleased) {
			t.Errorf("cause %v, err %v", context.Cause(bound), lease.Err())
		}
		mustRelease(t, next)
	})
}

// What was released or lost stays so, whoever asks for its renewal.
func TestRenewNeverBringsBack(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		claim := newClaim(newKey(), p.ttl)
		grant, err := p.backend.Acquire(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		if grant, err = p.backend.Renew(t.Context(), grant); err != nil {
			t.Fatalf("renew: %v", err)
		}
		if err := p.backend.Release(t.Context(), grant); err != nil {
			t.Fatalf("release: %v", err)
		}
		if _, err := p.backend.Renew(t.Context(), grant); !errors.Is(err, lock.ErrLost) {
			t.Fatalf("renew what was released: %v", err)
		}
		mustBeFree(t, p, claim.Key)
	})
}

func newClaim(key string, ttl time.Duration) lock.Claim {
	owner := lock.Owner{Host: "test", PID: 1, Grant: strings.ReplaceAll(key[len(key)-12:], " ", "") + time.Now().Format(".000000000"), Time: time.Now()}
	owner.Grant = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return 'x'
	}, owner.Grant)
	return lock.Claim{Key: key, Owner: owner, Value: owner.String(), TTL: ttl, Pause: lock.Backoff{Min: 10 * time.Millisecond, Max: time.Second}}
}

// An acquire that is sent again is the same acquire: one release frees the key.
func TestAcquireIsIdempotentByGrant(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		if p.backend.Properties().Sessions {
			t.Skip("a grant is a session: it cannot be asked for twice")
		}
		claim := newClaim(newKey(), p.ttl)
		var grant lock.Grant
		for range 3 {
			again, err := p.backend.Acquire(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			if grant.Token != 0 && again.Token != grant.Token {
				t.Errorf("token %d, then %d", grant.Token, again.Token)
			}
			grant = again
		}
		if err := p.backend.Release(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		mustBeFree(t, p, claim.Key)
	})
}

func TestCancelledWaiterLeavesNothing(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		first, second := w.joinFor(t, endless), w.joinFor(t, endless)
		key := newKey()
		lease := mustAcquire(t, first, key)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := second.acquire(ctx, key)
			failed <- err
		}()
		waits(t, first, key)
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
		mustRelease(t, lease)
		becomesFree(t, first, key, endless/3) // not by running out
	})
}

func TestTokensGrow(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		parties := []*party{w.join(t), w.join(t), w.join(t)}
		fencing := parties[0].backend.Properties().Fencing
		if _, fenced := parties[0].backend.(lock.FencedBackend); fenced != (fencing != lock.NoTokens) {
			t.Fatalf("fencing %q, but the type says %v", fencing, fenced)
		}
		if fencing == lock.NoTokens {
			return
		}
		key := newKey()
		var last atomic.Int64
		var workers sync.WaitGroup
		for _, p := range parties {
			workers.Go(func() {
				for range 5 {
					lease, err := p.acquire(t.Context(), key)
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					if token := int64(p.token(lease)); token <= last.Load() {
						t.Errorf("token %d after %d", token, last.Load())
					} else {
						last.Store(token)
					}
					mustReleaseAsync(t, lease)
				}
			})
		}
		workers.Wait()
	})
}

func TestFIFO(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		holder := w.joinFor(t, 10*time.Second)
		if !holder.backend.Properties().FIFO {
			t.Skip("no order is promised")
		}
		key := newKey()
		lease := mustAcquire(t, holder, key)
		const waiters = 4
		order := make(chan int, waiters)
		var workers sync.WaitGroup
		for i := range waiters {
			p := w.join(t)
			workers.Go(func() {
				err := p.do(t.Context(), key, func(context.Context) error { order <- i; return nil })
				if err != nil {
					t.Errorf("do: %v", err)
				}
			})
			waitsFor(t, holder, key, i+1)
		}
		mustRelease(t, lease)
		workers.Wait()
		close(order)
		var got []int
		for i := range order {
			got = append(got, i)
		}
		if !slices.Equal(got, []int{0, 1, 2, 3}) {
			t.Errorf("order %v", got)
		}
	})
}

// waitsFor returns when n wait for the key.
func waitsFor(t *testing.T, p *party, key string, n int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if h := find(t, p, key); h != nil && h.Waiting >= n {
			return
		}
	}
	t.Fatalf("%d waiters never showed", n)
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		key := newKey()
		for name, c := range map[string]struct {
			key     string
			options []lock.Option
		}{
			"no TTL":          {key, []lock.Option{lock.TTL(0)}},
			"negative TTL":    {key, []lock.Option{lock.TTL(-time.Second)}},
			"under a ms":      {key, []lock.Option{lock.TTL(500 * time.Microsecond)}},
			"TTL under 50 ms": {key, []lock.Option{lock.TTL(50*time.Millisecond - 1)}},
			"TTL over a day":  {key, []lock.Option{lock.TTL(25 * time.Hour)}},
			"no key":          {"", nil},
			"long key":        {strings.Repeat("k", 201), nil},
			"control":         {"a\nb", nil},
			"not UTF-8":       {"a\xff", nil},
			"long meta":       {key, []lock.Option{lock.Meta(strings.Repeat("m", 201))}},
			"no pause":        {key, []lock.Option{lock.Pause(lock.Backoff{})}},
		} {
			if lease, err := p.try(t.Context(), c.key, c.options...); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s: lease %v, error %v", name, lease, err)
			}
		}
		mustBeFree(t, p, key)
	})
}

// Two claims of one process are two claims: a session or a connection that they share makes them no single holder.
func TestOneProcessIsNotOneHolder(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		key := newKey()
		first := mustAcquire(t, p, key)
		if second, err := p.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("the same process was granted the key twice: %v, %v", second, err)
		}
		granted := make(chan *lock.Lease, 1)
		go func() {
			second, err := p.acquire(t.Context(), key)
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			granted <- second
		}()
		waits(t, p, key)
		select {
		case <-granted:
			t.Error("a waiter of the same process was granted a held key")
		default:
		}
		mustRelease(t, first)
		second := <-granted
		if second == nil {
			return
		}
		if err := first.Release(); err != nil { // once more, and nothing to the second
			t.Error(err)
		}
		if err := second.Err(); err != nil {
			t.Error(err)
		}
		mustRelease(t, second)
	})
}

// Do releases whatever happens to the work.
func TestDoReleases(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		key := newKey()
		failure := errors.New("the work failed")
		if err := p.do(t.Context(), key, func(context.Context) error { return failure }); !errors.Is(err, failure) || errors.Is(err, lock.ErrLost) {
			t.Errorf("do: %v", err)
		}
		mustBeFree(t, p, key)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = p.do(t.Context(), key, func(context.Context) error { panic("the work panicked") })
		}()
		mustBeFree(t, p, key)
		ctx, cancel := context.WithCancel(t.Context())
		err := p.do(ctx, key, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
			t.Errorf("do: %v", err)
		}
		mustBeFree(t, p, key)
	})
}

func TestClosedLockerRefuses(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.join(t)
		if err := p.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.try(t.Context(), newKey()); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("try: %v", err)
		}
	})
}
