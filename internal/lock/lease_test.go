package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func FuzzOwnerIsReadBack(f *testing.F) {
	f.Add("web-1", 4711, "settle 2026-05-01")
	f.Add("a b%20c", 0, "")
	f.Add("", 1, " / %2F \x00 ü")
	f.Fuzz(func(t *testing.T, host string, pid int, meta string) {
		want := lock.Owner{Host: host, PID: pid, Grant: "G1", Time: time.UnixMilli(1_777_777_777_123).UTC(), Meta: meta}
		value := want.String()
		if words := strings.Split(value, " "); len(words) != 5 {
			t.Fatalf("%q has %d words", value, len(words))
		}
		got, err := lock.ParseOwner(value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", value, diff)
		}
	})
}

func TestForeignValuesAreNoOwners(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "x", "a b c d e", "h 1 g 2026-05-01T10:00:00.000Z", "h 1  2026-05-01T10:00:00.000Z m", "h x g 2026-05-01T10:00:00.000Z m"} {
		if owner, err := lock.ParseOwner(value); err == nil {
			t.Errorf("%q was read as %+v", value, owner)
		}
	}
}

func TestPausesAreRandomAndBounded(t *testing.T) {
	t.Parallel()
	b := lock.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	for try, milliseconds := range []int{10, 20, 40, 80, 100, 100} {
		limit := time.Duration(milliseconds) * time.Millisecond
		var pauses []time.Duration
		for range 200 {
			pauses = append(pauses, b.Pause(try))
		}
		least, most := slices.Min(pauses), slices.Max(pauses)
		if most >= limit || least > limit/4 || most < limit*3/4 {
			t.Errorf("try %d: pauses from %s to %s, want them spread over %s", try, least, most, limit)
		}
	}
	if p := b.Pause(1_000_000); p >= b.Max {
		t.Errorf("a late try pauses %s", p)
	}
}

func TestMarginLeavesMostOfTheLease(t *testing.T) {
	t.Parallel()
	for ttl := lock.MinTTL; ttl <= lock.MaxTTL; ttl *= 2 {
		// Redlock allows for 1 % and 2 ms of drift.
		if m := lock.Margin(ttl); m > ttl/4 || m < ttl/100+2*time.Millisecond {
			t.Errorf("TTL %s: margin %s", ttl, m)
		}
	}
}

// recorder remembers events.
type recorder struct {
	mu     sync.Mutex
	events []lock.Event
}

func (r *recorder) observe(e lock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) kinds() []lock.Kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []lock.Kind
	for _, e := range r.events {
		if e.Kind != lock.Renewed || len(kinds) == 0 || kinds[len(kinds)-1] != lock.Renewed { // several are as good as one
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func TestObserverIsToldWhatHappens(t *testing.T) {
	t.Parallel()
	var told recorder
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	backend, err := redislock.New(redisClient(t, sandbox.RedisAddr(t)), redislock.Config{Prefix: sandbox.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // of text
	log := lock.Log(logger)
	locker := lock.New(backend, lock.TTL(brief), lock.Observe(lock.Observers(told.observe, nil, func(e lock.Event) {
		mu.Lock()
		defer mu.Unlock()
		log(e)
	})))
	defer func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()

	lease, err := locker.Acquire(t.Context(), "k", lock.Meta("why"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.TryAcquire(t.Context(), "k"); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	for first := lease.Deadline(); lease.Deadline().Equal(first); time.Sleep(time.Millisecond) { // until renewed
	}
	waited := make(chan *lock.Lease)
	go func() {
		next, err := locker.Acquire(t.Context(), "k", lock.NoRenew())
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		waited <- next
	}()
	time.Sleep(50 * time.Millisecond) //nolint:forbidigo // it asks and is told that the key is held, which nobody can see
	mustRelease(t, lease)
	next := <-waited
	within(t, "the end of an unrenewed lease", next.Lost())
	if err := next.Release(); !errors.Is(err, lock.ErrLost) {
		t.Fatal(err)
	}
	want := []lock.Kind{
		lock.Acquired, lock.Refused, lock.Renewed, lock.Released, lock.Contended, lock.Acquired, lock.Lost, lock.Late,
	}
	got := told.kinds()
	got = slices.Compact(got)
	// The release is told by its caller and the grant by the waiter: which comes first is up to them.
	if i := slices.Index(got, lock.Contended); i == 3 && len(got) == len(want) {
		got = slices.Concat(got[:3], []lock.Kind{lock.Released}, slices.DeleteFunc(slices.Clone(got[3:]), func(k lock.Kind) bool { return k == lock.Released }))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, e := range told.events {
		if e.Backend != "redis" || e.Key != "k" || e.Owner == "" {
			t.Errorf("an event without its lock: %+v", e)
		}
		if e.Kind == lock.Renewed && (e.Margin <= 0 || e.Margin > brief) {
			t.Errorf("margin %s", e.Margin)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(text.String(), `level=WARN msg="lock lost"`) || !strings.Contains(text.String(), grantOf(t, lease)) {
		t.Errorf("log: %s", text.String())
	}
}

// A bare lease has no token to give, so that what needs one does not compile with it.
func TestOnlyFencedBackEndsHaveTokens(t *testing.T) {
	t.Parallel()
	type fence interface{ Fence() lock.Token }
	if _, ok := any((*lock.Lease)(nil)).(fence); ok {
		t.Error("a bare lease has a fencing token")
	}
	if _, ok := any((*lock.Fenced)(nil)).(fence); !ok {
		t.Error("a fenced lease has no fencing token")
	}
	for _, backend := range []lock.Backend{(*redislock.Backend)(nil), (*redislock.Reentrant)(nil), (*redislock.Redlock)(nil)} {
		if _, ok := backend.(lock.FencedBackend); ok {
			t.Errorf("%T passes for a back end with tokens", backend)
		}
	}
}
