package lock_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
)

// warm makes the connections that a test is going to break.
func warm(t *testing.T, p *party) {
	t.Helper()
	mustRelease(t, mustAcquire(t, p, newKey()))
}

// grantOf is the grant id in a lease's owner value.
func grantOf(t *testing.T, l *lock.Lease) string {
	t.Helper()
	owner, err := lock.ParseOwner(l.Owner())
	if err != nil {
		t.Fatal(err)
	}
	return owner.Grant
}

// Other libraries answer "not obtained" here and hold the key until it runs out.
func TestAcquireOverABrokenWireNeitherLosesNorDoubles(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]fault.Action{
		"request lost": fault.LoseRequest, "reply lost": fault.LoseReply, "disconnected": fault.Disconnect,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, w *world) {
				other := w.join(t)
				p, broken := w.joinOver(t, endless)
				warm(t, p)
				key := newKey()
				fired := broken.at("the-broken-one", action)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				lease, err := p.acquire(ctx, key, lock.Meta("the-broken-one"))
				within(t, "the failure", fired[0])
				if err == nil {
					if _, err := other.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
						t.Errorf("granted, but not held: %v", err)
					}
					mustRelease(t, lease)
					mustBeFree(t, other, key)
					return
				}
				if !w.sessions(p) {
					t.Errorf("a back end that can be asked again should have been: %v", err)
				}
				becomesFree(t, other, key, endless/3) // not by running out
			})
		})
	}
}

func (w *world) sessions(p *party) bool { return p.backend.Properties().Sessions }

// A request that arrives after its claim was given up, or granted to a request sent again and released, must not
// hold the key.
func TestLateAcquireHoldsNothing(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"sent again": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, w *world) {
				other := w.join(t)
				p, broken := w.joinOver(t, endless)
				warm(t, p)
				key := newKey()
				held := broken.at("the-late-one", fault.HoldRequest)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if cancelled {
					go func() { <-held[0]; cancel() }()
				}
				lease, err := p.acquire(ctx, key, lock.Meta("the-late-one"))
				switch {
				case err == nil:
					mustRelease(t, lease)
				case cancelled && !errors.Is(err, context.Canceled):
					t.Errorf("cancelled: %v", err)
				}
				within(t, "the hold", held[0])
				// Close waits until the claim is given up, which takes a second connection; a back end that has only
				// one keeps what it sends in order.
				short, cancelClose := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Second)
				defer cancelClose()
				stopped := make(chan struct{})
				go func() { defer close(stopped); _ = p.close(short) }()
				select {
				case <-stopped:
				case <-time.After(time.Second):
				}
				broken.restore()
				within(t, "giving up", stopped)
				stays(t, other, key)
			})
		})
	}
}

// stays watches for a while that a key is free: what is late arrives within it.
func stays(t *testing.T, p *party, key string) {
	t.Helper()
	becomesFree(t, p, key, endless/3)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		mustBeFree(t, p, key)
	}
}

// Other libraries answer "not held" to the unlock that is sent again, though the first one released.
func TestReleaseOverABrokenWireTellsTheTruth(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]fault.Action{
		"request lost": fault.LoseRequest, "reply lost": fault.LoseReply, "disconnected": fault.Disconnect,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, w *world) {
				other := w.join(t)
				p, broken := w.joinOver(t, endless)
				warm(t, p) // else a Redis does not know the script, and the reply that is lost says just that
				key := newKey()
				lease := mustAcquire(t, p, key, lock.NoRenew())
				grant := grantOf(t, lease)
				fired := broken.when(func(r string) bool {
					return strings.Contains(r, grant) || strings.Contains(r, key) || w.opaque
				}, action)
				if err := lease.Release(); err != nil {
					t.Errorf("release: %v", err)
				}
				within(t, "the failure", fired[0])
				mustBeFree(t, other, key)
			})
		})
	}
}

// A release into a partition says so after a bounded time, and is made good afterwards.
func TestReleaseIntoAPartition(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		other := w.join(t)
		p, broken := w.joinOver(t, endless)
		key := newKey()
		lease := mustAcquire(t, p, key, lock.NoRenew())
		broken.swallow()
		started := time.Now()
		if err := lease.Release(); !errors.Is(err, lock.ErrUnknownOutcome) {
			t.Errorf("release: %v", err)
		}
		if took := time.Since(started); took > endless/3 {
			t.Errorf("release took %s", took)
		}
		if w.longest == 0 { // else it is over by now
			if _, err := other.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("the key was not held during the partition: %v", err)
			}
		}
		broken.restore()
		becomesFree(t, other, key, endless/3) // not by running out
	})
}

var holders = flag.Int("holders", 24, "how many holders are cut off on each back end; a multiple of 12")

// The ctx of a holder that is cut off ends before another can hold the key, in every partition.
//
// It runs before the tests that are parallel: how late a ctx ends is also a matter of how busy the machine is.
func TestPartitionedHolderStopsBeforeTheNextStarts(t *testing.T) { //nolint:paralleltest // see above
	forEach(t, func(t *testing.T, w *world) {
		if w.wireless {
			t.Skip("no wire to cut")
		}
		const atOnce = 12 // each at a phase of its own
		least := time.Hour
		for cut := 0; cut < *holders; cut += atOnce {
			least = min(least, w.leastMargin(t, atOnce))
		}
		t.Logf("%d holders cut off: the old one stopped at least %s before the new one held", *holders, least)
		if least <= 0 {
			t.Errorf("an old holder stopped %s after the new one held", -least)
		}
	})
}

// leastMargin is that of one partition. A machine so busy that a plain timer is later than the margin allows for
// tells nothing about the lock; then it is tried again.
func (w *world) leastMargin(t *testing.T, n int) time.Duration {
	t.Helper()
	for try := 1; ; try++ {
		lateness := watchTimers()
		least := slices.Min(w.partition(t, n))
		if late := lateness(); least > 0 || late < 20*time.Millisecond || try == 5 {
			return least
		}
	}
}

// watchTimers measures by how much timers are late until the returned function is called, which tells the most.
func watchTimers() (most func() time.Duration) {
	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		var late time.Duration
		for {
			const pause = 5 * time.Millisecond
			fired := make(chan time.Time, 1)
			due := time.Now().Add(pause)
			time.AfterFunc(pause, func() { fired <- time.Now() })
			select {
			case at := <-fired:
				late = max(late, at.Sub(due))
			case <-stop:
				done <- late
				return
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-done
	}
}

// partition cuts the holder of some keys off, each at a random phase of its renewals, and returns how long each key
// had no holder.
func (w *world) partition(t *testing.T, n int) []time.Duration {
	t.Helper()
	other := w.joinFor(t, 2*time.Second)
	p, broken := w.joinOver(t, 2*time.Second)
	margins := make([]time.Duration, n)
	var waiters, held sync.WaitGroup
	leases := make([]*lock.Lease, n)
	names := make([]string, n)
	for i := range n {
		names[i] = newKey()
		phase := rand.N(p.ttl / 3) // renewals are that far apart
		held.Go(func() {
			time.Sleep(phase) //nolint:forbidigo // see above
			lease, err := acquire(t.Context(), p, names[i])
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			leases[i] = lease
		})
	}
	held.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i, lease := range leases {
		bound, cancel := lease.Bind(t.Context())
		defer cancel()
		ended := make(chan time.Time, 1)
		context.AfterFunc(bound, func() { ended <- time.Now() })
		waiters.Go(func() {
			next, err := acquire(t.Context(), other, names[i])
			granted := time.Now()
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			margins[i] = granted.Sub(<-ended)
			if !lease.Deadline().Before(granted) {
				t.Errorf("the deadline was %s after the next grant", lease.Deadline().Sub(granted))
			}
			mustReleaseAsync(t, next)
		})
	}
	time.Sleep(rand.N(p.ttl / 2)) //nolint:forbidigo // the wire fails at a random time
	broken.swallow()
	waiters.Wait()
	broken.restore()
	for _, lease := range leases {
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a lost lease: %v", err)
		}
	}
	return margins
}

// A partition shorter than what is left of the lease costs nothing.
func TestLeaseSurvivesAShortCut(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p, broken := w.joinOver(t, 3*time.Second)
		if w.sessions(p) {
			t.Skip("a session does not outlive its connection")
		}
		lease := mustAcquire(t, p, newKey())
		for range 2 {
			broken.cut()
			time.Sleep(300 * time.Millisecond) //nolint:forbidigo // how long the wire is cut
			broken.restore()
			before := lease.Deadline()
			for end := time.Now().Add(patience); !lease.Deadline().After(before); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) || lease.Err() != nil {
					t.Fatalf("not renewed after the cut: %v", lease.Err())
				}
			}
		}
		mustRelease(t, lease)
	})
}

// Work under Do is told in time, and the caller is told that it may not have been alone.
func TestDoEndsTheWorkBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p, broken := w.joinOver(t, brief)
		err := p.do(t.Context(), newKey(), func(ctx context.Context) error {
			broken.swallow()
			<-ctx.Done()
			broken.restore()
			return context.Cause(ctx)
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("do: %v", err)
		}
	})
}

// The deadline is on the monotonic clock: setting the client's wall clock does nothing to it.
func TestDeadlineIsMonotonic(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p := w.joinFor(t, 2*time.Second)
		lease := mustAcquire(t, p, newKey())
		deadline := lease.Deadline()
		if !strings.Contains(deadline.String(), " m=") {
			t.Errorf("the deadline %s has no monotonic reading", deadline)
		}
		for end := time.Now().Add(patience); lease.Deadline().Equal(deadline); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never renewed")
			}
		}
		if !strings.Contains(lease.Deadline().String(), " m=") {
			t.Errorf("the renewed deadline %s has no monotonic reading", lease.Deadline())
		}
		mustRelease(t, lease)
	})
}

// Some clients answer "deadlock" or "closed" for ever once their session was lost.
func TestWhoLostTheKeyCanHaveItAgain(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		p, broken := w.joinOver(t, brief)
		key := newKey()
		lease := mustAcquire(t, p, key)
		broken.swallow()
		within(t, "the loss", lease.Lost())
		broken.restore()
		mustRelease(t, mustAcquire(t, p, key))
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of the lost lease: %v", err)
		}
	})
}
