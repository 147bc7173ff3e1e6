package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func tick(job string, at time.Time, token stock.Token) *stock.Tick {
	return &stock.Tick{Job: job, ScheduledAt: at, Token: token, Runner: fmt.Sprint("runner ", token), Limit: time.Hour}
}

// begin a tick, which must come to this.
func begin(t *testing.T, l *ledger.Ledger, k *stock.Tick, want bool, wantErr error) {
	t.Helper()
	if begun, err := l.BeginRun(t.Context(), k); begun != want || !errors.Is(err, wantErr) {
		t.Errorf("begin %s with token %d: %v, %v; want %v, %v", k.ScheduledAt, k.Token, begun, err, want, wantErr)
	}
}

func end(t *testing.T, l *ledger.Ledger, k *stock.Tick, want error) {
	t.Helper()
	if err := l.EndRun(t.Context(), k, stock.Ended{Outcome: stock.RunDone, Rows: 7}); !errors.Is(err, want) {
		t.Errorf("end %s with token %d: %v, want %v", k.ScheduledAt, k.Token, err, want)
	}
}

func TestTickRunsOnce(t *testing.T) {
	t.Parallel()
	l := open(t)
	first := tick("j", noon, 10)
	begin(t, l, first, true, nil)
	begin(t, l, tick("j", noon, 9), false, stock.ErrStale)            // an older holder
	begin(t, l, tick("other", noon, 1), true, nil)                    // another job
	end(t, l, tick("j", noon.Add(time.Second), 10), stock.ErrStale)   // a tick that was not begun
	end(t, l, first, nil)                                             // done
	end(t, l, first, stock.ErrStale)                                  // once
	begin(t, l, tick("j", noon, 11), false, nil)                      // ran already
	begin(t, l, tick("j", noon.Add(2*time.Second), 12), true, nil)    // the next one
	begin(t, l, tick("j", noon.Add(time.Second), 13), false, nil)     // a clock that is behind
	begin(t, l, tick("j", noon.Add(2*time.Second), 14), true, nil)    // abandoned: taken over
	end(t, l, tick("j", noon.Add(2*time.Second), 12), stock.ErrStale) // by whom it was taken from
	end(t, l, tick("j", noon.Add(2*time.Second), 14), nil)
	runs, err := l.Runs(t.Context(), "j", 10)
	if err != nil || len(runs) != 2 {
		t.Fatalf("runs %+v, %v", runs, err)
	}
	last := runs[0]
	if last.Token != 14 || last.Runner != "runner 14" || last.Attempts != 2 || last.Outcome != stock.RunDone || last.Rows != 7 ||
		last.EndedAt == nil || !last.ScheduledAt.Equal(noon.Add(2*time.Second)) {
		t.Errorf("last run %+v", last)
	}
}

func TestOldRunsAreForgotten(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	begin(t, l, tick("kept", noon, 1), true, nil)
	execute(t, url, `INSERT INTO job_runs (job, scheduled_at, started_at, ended_at, token, runner, outcome)
		SELECT 'j', $1::timestamptz + n * interval '1 second', now(), now(), n, '', 'done' FROM generate_series(1, 1200) n`, noon)
	last := tick("j", noon.Add(time.Hour), 2000)
	begin(t, l, last, true, nil)
	end(t, l, last, nil)
	if n := scalar[int](t, url, "SELECT count(*) FROM job_runs WHERE job = 'j'"); n != 1000 {
		t.Errorf("%d runs are kept", n)
	}
	if n := scalar[int](t, url, "SELECT count(*) FROM job_runs WHERE job = 'kept'"); n != 1 {
		t.Error("another job's run is gone")
	}
}

// A guard that only compares at each write, "refuse tokens smaller than the last that wrote", lets a stale holder
// write as long as the new one has not: that is shown first. The ledger's guard has the new holder claim its token
// before it does anything, so the stale one's first write is refused as well.
func TestStaleFirstWriteIsRefused(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	execute(t, url, "CREATE TABLE naive (token bigint NOT NULL DEFAULT 0, value text)")
	execute(t, url, "INSERT INTO naive DEFAULT VALUES")
	write := func(token int, value string) int64 {
		return execute(t, url, "UPDATE naive SET token = $1, value = $2 WHERE token <= $1", token, value)
	}
	// Holder 1 is paused before its first write; holder 2 has taken over and is about to write.
	if write(1, "stale") != 1 {
		t.Fatal("the comparison at write refused the stale first write: then no claim would be needed")
	}
	if write(2, "new") != 1 || write(1, "stale") != 0 {
		t.Fatal("the comparison at write does not even order writes")
	}

	stockUp(t, l, "A", 5)
	happened(t, url, 1)
	id := expiredHold(t, l, url, "A")
	old, newer := tick("j", noon, 1), tick("j", noon, 2)
	begin(t, l, old, true, nil)
	begin(t, l, newer, true, nil) // and nothing written yet
	if _, err := l.Expire(t.Context(), id, old.Fence()); !errors.Is(err, stock.ErrStale) {
		t.Errorf("the stale holder's first write: %v", err)
	}
	if _, err := l.Settle(t.Context(), old.Fence()); !errors.Is(err, stock.ErrStale) {
		t.Errorf("the stale holder's settlement: %v", err)
	}
	if held := levels(t, l, "A").Held; held != 1 {
		t.Fatalf("%d held: the refused write had its effect", held)
	}
	if _, err := l.Expire(t.Context(), id, newer.Fence()); err != nil {
		t.Errorf("the newest holder: %v", err)
	}
	if held := levels(t, l, "A").Held; held != 0 {
		t.Errorf("%d held", held)
	}
}

// Requests of others that share a batch with a stale write are not hurt by it.
func TestStaleWriteHurtsNoOther(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 100)
	id := expiredHold(t, l, url, "A")
	begin(t, l, tick("j", noon, 2), true, nil)
	const each = 20
	failures := make(chan error, 2*each)
	for i := range each {
		go func() {
			_, err := l.Expire(t.Context(), id, tick("j", noon, 1).Fence())
			if errors.Is(err, stock.ErrStale) {
				err = nil
			} else if err == nil {
				err = errors.New("a stale write was accepted")
			}
			failures <- err
		}()
		go func() {
			_, err := l.Deduct(t.Context(), order(fmt.Sprint("o", i), "A"))
			failures <- err
		}()
	}
	for range 2 * each {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	if l := levels(t, l, "A"); l.OnHand != 100-each || l.Held != 1 {
		t.Error(figures(l))
	}
}

// A claim's writes are accepted for as long as it said, by the ledger's clock, whoever else wants the fence or not.
func TestDeadlineIsTheLedgers(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 5)
	k := tick("j", noon, 1)
	begin(t, l, k, true, nil)
	if _, err := l.Settle(t.Context(), k.Fence()); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "UPDATE fences SET ends_at = clock_timestamp()")
	if _, err := l.Expire(t.Context(), expiredHold(t, l, url, "A"), k.Fence()); !errors.Is(err, stock.ErrStale) {
		t.Errorf("after the deadline: %v", err)
	}
	end(t, l, k, nil) // how it ended may still be written down
}

// A transaction under way keeps a newer claim waiting, so none of its writes comes after that claim.
func TestClaimWaitsForWritesUnderWay(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	begin(t, l, tick("j", noon, 1), true, nil)
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM fences WHERE key = 'job/j' AND token = 1 FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() {
		_, err := l.BeginRun(t.Context(), tick("j", noon, 2))
		claimed <- err
	}()
	waiting := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
	for deadline := time.Now().Add(2 * time.Second); scalar[int](t, url, waiting) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the claim does not wait")
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}

// expiredHold makes a hold whose time is over.
func expiredHold(t *testing.T, l *ledger.Ledger, url, sku string) stock.DeductionID {
	t.Helper()
	r := order("hold "+sku, sku)
	r.Hold = time.Hour
	d := deduct(t, l, r)
	execute(t, url, "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", d.ID)
	return d.ID
}

func scalar[T any](t *testing.T, url, sql string, args ...any) (v T) {
	t.Helper()
	if err := connect(t, url).QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// happened makes what happened so far happen this many days ago.
func happened(t *testing.T, url string, daysAgo int) {
	t.Helper()
	execute(t, url, "UPDATE movements SET at = at - $1 * interval '1 day' WHERE at > now() - interval '12 hours'", daysAgo)
	execute(t, url, "UPDATE items SET created_at = LEAST(created_at, now() - $1 * interval '1 day')", daysAgo)
}

func today() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

func settled(t *testing.T, l *ledger.Ledger, day time.Time) []stock.Settlement {
	t.Helper()
	page, err := l.Settlements(t.Context(), stock.SettlementQuery{Day: day, Limit: 100})
	if err != nil {
		t.Fatalf("settlements of %s: %v", day, err)
	}
	return page.Settlements
}

func TestDaysAreSettled(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 100) // 100 received
	stockUp(t, l, "B", 5)
	taken := deduct(t, l, order("a", "A", "B"))
	expiredHold(t, l, url, "A") // moves nothing
	happened(t, url, 5)
	adjust := func(kind stock.MovementKind, delta stock.Quantity) {
		t.Helper()
		r := &stock.AdjustRequest{Keyed: keyed(fmt.Sprint(kind, delta)), Item: at("A"), Kind: kind, Delta: delta}
		if _, err := l.Adjust(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("back"), ID: taken.ID}); err != nil {
		t.Fatal(err)
	}
	adjust(stock.Adjust, -3)
	adjust(stock.Count, 1)
	happened(t, url, 2)
	deduct(t, l, order("now", "A")) // today is not over
	k := tick("settle", noon, 1)
	begin(t, l, k, true, nil)
	for try, want := range []int64{4, 0} {
		if n, err := l.Settle(t.Context(), k.Fence()); err != nil || n != want {
			t.Fatalf("settle, time %d: %d rows, %v", try, n, err)
		}
	}
	first := []stock.Settlement{
		{Item: at("A"), Version: 3, Opening: 0, Moved: stock.Moved{Received: 100, Deducted: 1}, Closing: 99},
		{Item: at("B"), Version: 2, Opening: 0, Moved: stock.Moved{Received: 5, Deducted: 1}, Closing: 4},
	}
	if diff := cmp.Diff(first, settled(t, l, today().AddDate(0, 0, -5))); diff != "" {
		t.Errorf("the first day (-want +got):\n%s", diff)
	}
	if quiet := settled(t, l, today().AddDate(0, 0, -4)); len(quiet) != 0 {
		t.Errorf("a day on which nothing moved: %+v", quiet)
	}
	second := []stock.Settlement{
		{Item: at("A"), Version: 6, Opening: 99, Moved: stock.Moved{Returned: 1, Adjusted: -2}, Closing: 98},
		{Item: at("B"), Version: 3, Opening: 4, Moved: stock.Moved{Returned: 1}, Closing: 5},
	}
	if diff := cmp.Diff(second, settled(t, l, today().AddDate(0, 0, -2))); diff != "" {
		t.Errorf("the second day (-want +got):\n%s", diff)
	}
	if _, err := l.Settlements(t.Context(), stock.SettlementQuery{Day: today(), Limit: 1}); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("today: %v", err)
	}
}

// A run that ended half-way is finished by the next one, and what it settled stays as it is.
func TestHalfASettlementIsFinished(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	const items = 700 // more than a slice
	execute(t, url, `INSERT INTO items (sku, location, on_hand, version)
		SELECT 'sku ' || n, 'default', 10, 1 FROM generate_series(1, $1::integer) n`, items)
	execute(t, url, `INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind)
		SELECT id, 1, 10, 0, 10, 0, now(), 'receive' FROM items`)
	happened(t, url, 1)
	k := tick("settle", noon, 1)
	begin(t, l, k, true, nil)
	execute(t, url, `INSERT INTO settlements (day, item_id, version, opening, received, deducted, returned, adjusted, closing)
		SELECT $1::date, id, 1, 0, 10, 0, 0, 0, 10 FROM items WHERE id % 3 = 0`, today().AddDate(0, 0, -1))
	left := int64(items - items/3)
	if n, err := l.Settle(t.Context(), k.Fence()); err != nil || n != left {
		t.Errorf("settled %d, %v, want %d", n, err, left)
	}
	if n := scalar[int64](t, url, "SELECT items FROM settled_days"); n != items {
		t.Errorf("the day has %d items", n)
	}
}

func TestEmptyLedgerHasNothingToSettle(t *testing.T) {
	t.Parallel()
	l := open(t)
	if n, err := l.Settle(t.Context(), tick("settle", noon, 1).Fence()); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
