package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// A holder that dies: its connections end, and nobody renews.
func TestDeathIsAsPromised(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		other := w.join(t)
		p, broken := w.joinOver(t, endless)
		key := newKey()
		lease := mustAcquire(t, p, key)
		t.Cleanup(func() {
			broken.restore()
			_ = lease.Release() // or in the background, or by its end
		})
		broken.cut()
		if p.backend.Properties().Death == lock.OnDisconnect {
			becomesFree(t, other, key, endless/3)
			return
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if _, err := other.try(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
				t.Fatalf("not held any more: %v", err)
			}
		}
	})
}

// A dead holder's key, and a restart of the servers in between.
func TestRestartIsAsPromised(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		if w.own == nil {
			t.Skip("as another back end")
		}
		w = w.own(t)
		const ttl, slack = 4 * time.Second, 6 * time.Second // of a busy machine
		p, broken := w.joinOver(t, ttl)
		warm(t, p)
		key := newKey()
		lease := mustAcquire(t, p, key, lock.NoRenew())
		ends := time.Now().Add(ttl)
		token := p.token(lease)
		time.Sleep(ttl / 2) //nolint:forbidigo // a lease that begins anew is told from one that goes on when it is not new
		cut := time.Now()
		broken.cut()
		w.restart(t)
		restarted := time.Now()

		next := w.joinFor(t, ttl)
		asked, prolongs := time.Now(), p.backend.Properties().Restart == lock.Prolongs
		if h := find(t, next, key); h != nil && h.Remaining > 0 && (h.Remaining > ends.Sub(asked)) != prolongs {
			t.Errorf("%q, but %s are left, and %s were", p.backend.Properties().Restart, h.Remaining, ends.Sub(asked))
		}
		again := mustAcquire(t, next, key)
		freed := time.Now()
		defer mustRelease(t, again)
		earliest, latest := lease.Deadline(), later(ends, restarted).Add(slack)
		switch p.backend.Properties().Restart {
		case lock.Prolongs:
			earliest, latest = cut.Add(ttl), restarted.Add(ttl+slack)
		case lock.Forgets:
			earliest = restarted
			latest = restarted.Add(slack)
		}
		if freed.Before(earliest) || freed.After(latest) {
			t.Errorf("%q, but free %s after the deadline and %s after the restart",
				p.backend.Properties().Restart, freed.Sub(lease.Deadline()), freed.Sub(restarted))
		}
		if token != 0 && next.token(again) <= token {
			t.Errorf("token %d after %d", next.token(again), token)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
