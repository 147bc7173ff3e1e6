package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/db"
	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

const patience = 30 * time.Second

func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// migrated is a pool on the first database of a server of its own.
func migrated(t *testing.T, server *sandbox.Postgres) *pgxpool.Pool {
	t.Helper()
	url := server.URL("postgres")
	if err := db.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return newPool(t, url)
}

// A draw that is sent again is the same draw, and draws of one key grow in the order in which they are granted.
func TestTokensAreDrawnOnceForEachHold(t *testing.T) {
	t.Parallel()
	source := pglock.NewTokens(newPool(t, sandbox.Database(t)))
	draw := func(key, hold string) lock.Token {
		token, err := source.Draw(t.Context(), key, hold)
		if err != nil {
			t.Errorf("draw: %v", err)
		}
		return token
	}
	first := draw("k", "h1")
	if again := draw("k", "h1"); again != first {
		t.Errorf("the same hold drew %d, then %d", first, again)
	}
	other := draw("another", "h1")
	second := draw("k", "h2")
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	tokens, err := source.Last(t.Context(), []string{"k", "another", "unknown"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]lock.Token{"k": second, "another": other}, tokens); diff != "" {
		t.Error(diff)
	}
}

// A statement that drew a number and then waited for the row would give a later holder the smaller token.
func TestTokensGrowUnderContention(t *testing.T) {
	t.Parallel()
	source := pglock.NewTokens(newPool(t, sandbox.Database(t)))
	var turn sync.Mutex // stands for the lock: it orders the draws of one key
	var last lock.Token
	var drawing sync.WaitGroup
	for i := range 8 {
		drawing.Go(func() {
			for n := range 50 {
				turn.Lock()
				token, err := source.Draw(t.Context(), "k", fmt.Sprint(i, n))
				if err != nil || token <= last {
					t.Errorf("token %d after %d, %v", token, last, err)
				}
				last = token
				turn.Unlock()
				if _, err := source.Draw(t.Context(), fmt.Sprint("k", i), fmt.Sprint(n)); err != nil { // others draw meanwhile
					t.Error(err)
				}
			}
		})
	}
	drawing.Wait()
}

// A standby that had not received the last draws must not give their numbers again.
func TestTokensGrowOverAFailover(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	pool := migrated(t, primary)
	link := newProxy(t, primary.Addr())
	standby := newStandby(t, primary, link.Addr())
	source := pglock.NewTokens(pool)
	before, err := source.Draw(t.Context(), "k", "seen")
	if err != nil {
		t.Fatal(err)
	}
	link.Swallow() // replication lags, as it may
	var lost lock.Token
	for i := range 100 { // more than the sequence logs ahead
		if lost, err = source.Draw(t.Context(), "k", fmt.Sprint("lost", i)); err != nil {
			t.Fatal(err)
		}
	}
	promote(t, standby)
	after, err := pglock.NewTokens(newPool(t, standby.URL("postgres"))).Draw(t.Context(), "k", "next")
	if err != nil {
		t.Fatal(err)
	}
	if after <= lost || lost <= before {
		t.Errorf("token %d after the failover, %d and %d before", after, before, lost)
	}
}

// A holder that hangs without a word is ended by the server when its lease is over, not when TCP gives up.
func TestServerEndsTheSessionOfASilentHolder(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	pool := newPool(t, database)
	silent, err := pglock.NewAdvisory(t.Context(), pool, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	claim := newClaim("k", time.Second)
	if _, err := silent.Acquire(t.Context(), claim); err != nil { // and never renewed
		t.Fatal(err)
	}
	sessions := func() (n int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast-lock' AND datname = current_database()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := sessions(); n != 1 {
		t.Fatalf("%d sessions", n)
	}
	started := time.Now()
	for sessions() > 0 {
		if time.Since(started) > patience {
			t.Fatal("the session goes on")
		}
	}
	if took := time.Since(started); took > patience/3 {
		t.Errorf("the session ended after %s", took)
	}
	if err := silent.Release(t.Context(), lock.Grant{Claim: claim}); err == nil {
		t.Error("released by a session that is gone")
	}
}

// The end of a holder's connection frees the key at once; the holder hears of it at once, too.
func TestHolderIsToldThatItsSessionEnded(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sandbox.Database(t))
	backend, err := pglock.NewAdvisory(t.Context(), pool, 2)
	if err != nil {
		t.Fatal(err)
	}
	locker := lock.NewFenced(backend, lock.TTL(time.Minute)) // the next renewal is 20 s away
	defer func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	lease, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	tag, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM lock_session WHERE key = 'k'")
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("end the session: %s, %v", tag, err)
	}
	select {
	case <-lease.Lost():
	case <-time.After(patience / 2): // before it would have asked itself
		t.Error("not told")
	}
	if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v", err)
	}
}

// A process that stops does not wait for whoever still holds a key; that holder is told, by whatever it does next.
func TestCloseEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sandbox.Database(t))
	for range 5 {
		const holders = 8
		backend, err := pglock.NewAdvisory(t.Context(), pool, holders)
		if err != nil {
			t.Fatal(err)
		}
		locker := lock.NewFenced(backend, lock.TTL(time.Second))
		var renewals atomic.Int32
		renewed := make(chan struct{}, 1)
		told := lock.Observe(func(e lock.Event) {
			if e.Kind == lock.Renewed && renewals.Add(1) == 1 {
				renewed <- struct{}{}
			}
		})
		var leases []*lock.Fenced
		for i := range holders {
			lease, err := locker.Acquire(t.Context(), fmt.Sprint(i), told)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		<-renewed // the other renewals are on their way, or about to be
		if err := locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases {
			select {
			case <-lease.Lost():
			case <-time.After(patience):
				t.Fatal("not told")
			}
			if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
				t.Errorf("release: %v", err)
			}
		}
	}
}

// Sessions are used again and do not pile up.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	pool := newPool(t, sandbox.Database(t))
	const most = 3
	backend, err := pglock.NewAdvisory(t.Context(), pool, most)
	if err != nil {
		t.Fatal(err)
	}
	locker := lock.NewFenced(backend)
	defer func() { _ = locker.Close(context.Background()) }()
	var workers sync.WaitGroup
	for i := range 12 {
		workers.Go(func() {
			for range 5 {
				if err := locker.Do(t.Context(), fmt.Sprint(i), func(context.Context, *lock.Fenced) error { return nil }); err != nil {
					t.Errorf("do: %v", err)
				}
			}
		})
	}
	workers.Wait()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast-lock' AND datname = current_database()").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n == 0 || n > most {
		t.Errorf("%d sessions, want up to %d", n, most)
	}
	// Nor do goroutines that wait for a session to end, though the sessions go on.
	const others = 30 // of tests beside this one, at the most; here there were 60
	for end := time.Now().Add(patience); watching(t) > others; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines watch over leases", watching(t))
		}
	}
}

// watching is how many goroutines watch over a lease.
func watching(t *testing.T) int {
	t.Helper()
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Count(stacks.String(), "lock.(*Lease).watch(")
}

func newClaim(key string, ttl time.Duration) lock.Claim {
	owner := lock.Owner{Host: "h", PID: 1, Grant: "G" + key, Time: time.Unix(0, 0)}
	return lock.Claim{Key: key, Owner: owner, Value: owner.String(), TTL: ttl}
}

func newProxy(t *testing.T, target string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newStandby(t *testing.T, primary *sandbox.Postgres, via string) *sandbox.Postgres {
	t.Helper()
	standby, err := sandbox.StartPostgresStandby(t.Context(), primary, sandbox.StandbyConfig{Name: "standby", Via: via})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := standby.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return standby
}

func promote(t *testing.T, standby *sandbox.Postgres) {
	t.Helper()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
}
