package ledger_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// age makes what was written so far older by a year.
func age(t testing.TB, url string) {
	t.Helper()
	execute(t, url, `UPDATE movements SET at = at - interval '1 year'`)
	execute(t, url, `UPDATE deductions SET created_at = created_at - interval '1 year'`)
}

// monthAgo is after what was aged and before what was not.
func monthAgo() time.Time { return time.Now().AddDate(0, -1, 0) }

// retain runs retention to its end and returns how many movements it rolled up.
func retain(t testing.TB, l *ledger.Ledger, archive *ledger.Archive) int {
	t.Helper()
	r := l.Retain(monthAgo(), archive, stock.Fence{})
	for movements := 0; ; {
		step, err := r.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		movements += step.Movements
		if step.Done {
			return movements
		}
	}
}

// movements of an item, each as version, kind and deltas.
func movements(t testing.TB, l *ledger.Ledger, sku string) []string {
	t.Helper()
	list, err := l.Movements(t.Context(), stock.MovementQuery{Item: at(sku), Limit: stock.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	words := make([]string, len(list))
	for i, m := range list {
		words[i] = fmt.Sprintf("%d %s %d %d", m.Version, m.Kind, m.DeltaOnHand, m.DeltaHeld)
	}
	return words
}

// archivedLines are an archive's, each as item, version, kind and deltas.
func archivedLines(t testing.TB, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		r, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if text, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	lines := []string{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var m struct {
			SKU, Kind, Actor string
			Version          int64
			DeltaOnHand      int64 `json:"delta_on_hand"`
			DeltaHeld        int64 `json:"delta_held"`
		}
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		if m.Actor != "shop" {
			t.Errorf("nobody did it: %s", s.Text())
		}
		lines = append(lines, fmt.Sprintf("%s %d %s %d %d", m.SKU, m.Version, m.Kind, m.DeltaOnHand, m.DeltaHeld))
	}
	return lines
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// mustCheck fails the test if the ledger's own check finds anything.
func mustCheck(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	items, err := l.ItemsAfter(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	found, err := l.CheckWhole(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := l.CheckItems(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	for i := range checks {
		found = append(found, checks[i].Findings...)
	}
	_, _, keys, err := l.CheckKeys(t.Context(), stock.Keyed{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	_, _, customers, err := l.CheckCustomers(t.Context(), ledger.Counter{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(found, keys, customers) {
		t.Errorf("found: %+v", f)
	}
}

// TestRetentionKeepsTheSums: old movements become one checkpoint, the young stay, and every retry is answered as before.
func TestRetentionKeepsTheSums(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 9)
	stockUp(t, l, "lonely", 9)
	mustCheck(t, l) // what was checked before is where the next check begins
	taken := deduct(t, l, order("taken", "A", "A"))
	hold := order("held", "A")
	hold.Hold = stock.MaxHold
	held := deduct(t, l, hold)
	age(t, url)
	receive(t, l, "young", "A", 5)
	archive := filepath.Join(t.TempDir(), "old.ndjson.gz")
	if n := retain(t, l, ledger.NewArchive(archive)); n != 4 {
		t.Errorf("%d rolled up, want 4", n)
	}
	mustHold(t, url)
	mustCheck(t, l)
	same(t, "movements", movements(t, l, "A"), []string{"4 checkpoint 7 1", "5 adjust 5 0"})
	same(t, "of an item with one movement", movements(t, l, "lonely"), []string{"1 receive 9 0"})
	want := []string{"A 1 receive 9 0", "A 2 deduct -1 0", "A 3 deduct -1 0", "A 4 hold 0 1"}
	same(t, "archive", archivedLines(t, archive), want)
	if n := retain(t, l, ledger.NewArchive(archive)); n != 0 {
		t.Errorf("%d rolled up again", n)
	}

	again, err := l.Deduct(t.Context(), order("taken", "A", "A"))
	if err != nil || !again.Replayed || again.Deduction.ID != taken.ID || len(again.Deduction.Lines) != 2 {
		t.Errorf("a retry of the order: %+v, %v", again, err)
	}
	r := &stock.AdjustRequest{Keyed: keyed("stock A"), Item: at("A"), Kind: stock.Receive, Delta: 9}
	adjusted, err := l.Adjust(t.Context(), r)
	if err != nil || !adjusted.Replayed || adjusted.Movement.Kind != stock.Checkpoint || adjusted.Movement.Version != 4 {
		t.Errorf("a retry of the delivery: %+v, %v", adjusted, err)
	}
	r.Delta = 8
	if _, err := l.Adjust(t.Context(), r); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("the key for something else: %v", err)
	}
	if _, err := l.Commit(t.Context(), &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: held.ID}); err != nil {
		t.Errorf("commit of an old hold: %v", err)
	}
	if _, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("back"), ID: taken.ID}); err != nil {
		t.Errorf("return of an old order: %v", err)
	}
	// The next year, the checkpoint is rolled up with what came after it.
	age(t, url)
	if n := retain(t, l, ledger.NewArchive(archive)); n != 4 {
		t.Errorf("%d rolled up the next year, want 4", n)
	}
	same(t, "movements", movements(t, l, "A"), []string{"8 checkpoint 13 0"})
	mustCheck(t, l)
	want = append(want, "A 5 adjust 5 0", "A 6 commit -1 -1", "A 7 return 1 0", "A 8 return 1 0")
	same(t, "archive", archivedLines(t, archive), want)
	mustHold(t, url)
}

// TestRetentionIsResumed: a step that wrote to the archive and did not commit is done again, and the archive has every
// movement once; a step whose reply is lost is found done.
func TestRetentionIsResumed(t *testing.T) {
	t.Parallel()
	for how, action := range map[string]fault.Action{
		"request lost": fault.LoseRequest, "reply lost": fault.LoseReply,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			database := sandbox.Database(t)
			direct := openAt(t, database)
			want := []string{}
			for n := range 3 {
				sku := fmt.Sprint("item ", n)
				stockUp(t, direct, sku, 9)
				deduct(t, direct, order(sku, sku))
				want = append(want, sku+" 1 receive 9 0", sku+" 2 deduct -1 0")
			}
			age(t, database)
			proxy, url := behind(t, database)
			path := filepath.Join(t.TempDir(), "old.ndjson")
			before := movements(t, direct, "item 0")
			fired := proxy.OnRequest(contains("commit"), action)
			r := start(t, ledger.Config{URL: url}).Retain(monthAgo(), ledger.NewArchive(path), stock.Fence{})
			if step, err := r.Step(t.Context()); err == nil {
				t.Errorf("the step that was lost: %+v", step)
			}
			happens(t, how, fired)
			same(t, "archive", archivedLines(t, path), want) // the file has it, whether or not it is done
			if after := movements(t, direct, "item 0"); action == fault.LoseRequest && !cmp.Equal(before, after) {
				t.Errorf("not committed, but gone: %q", after)
			}
			eventually(t, "the step is done", func() bool {
				step, err := r.Step(t.Context())
				return err == nil && step.Done
			})
			same(t, "archive", archivedLines(t, path), want)
			same(t, "movements", movements(t, direct, "item 0"), []string{"2 checkpoint 8 0"})
			mustHold(t, database)
		})
	}
}

// TestRetentionRefusesAnotherFile: an archive that lost something, and a figure that does not add up, stop it before
// anything is deleted.
func TestRetentionRefusesAnotherFile(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 9)
	deduct(t, l, order("o", "A"))
	age(t, url)
	path := filepath.Join(t.TempDir(), "old.ndjson")
	retain(t, l, ledger.NewArchive(path))
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	deduct(t, l, order("p", "A"))
	deduct(t, l, order("q", "A"))
	age(t, url)
	before := movements(t, l, "A")
	if _, err := l.Retain(monthAgo(), ledger.NewArchive(path), stock.Fence{}).Step(t.Context()); err == nil || !strings.Contains(err.Error(), "not the file") {
		t.Errorf("a file that lost something: %v", err)
	}
	same(t, "movements", movements(t, l, "A"), before)
	execute(t, url, `UPDATE movements SET on_hand = 1 WHERE version = 4`)
	if _, err := l.Retain(monthAgo(), nil, stock.Fence{}).Step(t.Context()); err == nil || !strings.Contains(err.Error(), "come to 6") {
		t.Errorf("movements that do not add up: %v", err)
	}
	same(t, "movements", movements(t, l, "A"), before)
}

// A run that was taken over deletes nothing and writes to no file, not even before its successor's first step.
func TestRetentionIsFenced(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 9)
	deduct(t, l, order("o", "A"))
	age(t, url)
	before := movements(t, l, "A")
	old, newer := tick("retain", noon, 1), tick("retain", noon, 2)
	begin(t, l, old, true, nil)
	begin(t, l, newer, true, nil)
	path := filepath.Join(t.TempDir(), "old.ndjson")
	if step, err := l.Retain(monthAgo(), ledger.NewArchive(path), old.Fence()).Step(t.Context()); !errors.Is(err, stock.ErrStale) {
		t.Errorf("the stale holder's step: %+v, %v", step, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale holder's file: %v", err)
	}
	same(t, "movements", movements(t, l, "A"), before)
	if step, err := l.Retain(monthAgo(), ledger.NewArchive(path), newer.Fence()).Step(t.Context()); err != nil || step.Movements != 2 {
		t.Errorf("the newest holder's step: %+v, %v", step, err)
	}
	same(t, "movements", movements(t, l, "A"), []string{"2 checkpoint 8 0"})
}

// What a settlement has still to look at is kept, however old it is, and the settled days stay what they are.
func TestRetentionWaitsForSettlements(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	k := tick("settle", noon, 1)
	begin(t, l, k, true, nil)
	stockUp(t, l, "A", 100)
	deduct(t, l, order("first", "A"))
	happened(t, url, 3)
	if _, err := l.Settle(t.Context(), k.Fence()); err != nil { // up to yesterday
		t.Fatal(err)
	}
	execute(t, url, "DELETE FROM settled_days WHERE day > $1", today().AddDate(0, 0, -3))
	deduct(t, l, order("second", "A"))
	happened(t, url, 2)
	deduct(t, l, order("third", "A"))
	happened(t, url, 1)
	execute(t, url, "UPDATE deductions d SET created_at = m.at FROM movements m WHERE m.deduction_id = d.id")
	if n, err := l.Retain(today(), nil, stock.Fence{}).Step(t.Context()); err != nil || n.Movements != 0 {
		t.Errorf("of the last settled day, and of days that are not: %+v, %v", n, err)
	}
	if _, err := l.Settle(t.Context(), k.Fence()); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retain(today(), nil, stock.Fence{}).Step(t.Context()); err != nil || n.Movements != 3 {
		t.Errorf("of settled days: %+v, %v", n, err)
	}
	same(t, "movements", movements(t, l, "A"), []string{"3 checkpoint 98 0", "4 deduct -1 0"})
	want := []stock.Settlement{{Item: at("A"), Version: 3, Opening: 99, Moved: stock.Moved{Deducted: 1}, Closing: 98}}
	if diff := cmp.Diff(want, settled(t, l, today().AddDate(0, 0, -2))); diff != "" {
		t.Errorf("the second day (-want +got):\n%s", diff)
	}
	mustCheck(t, l)
}

// TestRetentionDuringAReplayStorm: orders and deliveries are sent again and again while their movements are rolled up, by two
// at once; each is answered as a replay, and the figures stay the sums at every moment.
func TestRetentionDuringAReplayStorm(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	two := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	const orders = 60
	skus := []string{"A", "B", "C"}
	for _, sku := range skus {
		stockUp(t, two[0], sku, orders)
	}
	ids := make([]stock.DeductionID, orders)
	var made sync.WaitGroup
	for n := range orders {
		made.Go(func() { ids[n] = deduct(t, two[n%2], order(fmt.Sprint(n), skus[n%3])).ID })
	}
	made.Wait()
	age(t, url)
	stop := make(chan struct{})
	var storm sync.WaitGroup
	for n := range 8 {
		storm.Go(func() {
			for i := n; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				o := i % orders
				out, err := two[i%2].Deduct(t.Context(), order(fmt.Sprint(o), skus[o%3]))
				if err != nil || !out.Replayed || out.Deduction.ID != ids[o] {
					t.Errorf("order %d again: %+v, %v", o, out, err)
				}
				sku := skus[i%3]
				back, err := two[i%2].Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed("stock " + sku), Item: at(sku), Kind: stock.Receive, Delta: orders})
				if err != nil || !back.Replayed {
					t.Errorf("delivery of %s again: %+v, %v", sku, back, err)
				}
				deduct(t, two[i%2], order(fmt.Sprint("new ", n, " ", i), sku))
				receive(t, two[i%2], fmt.Sprint("more ", n, " ", i), sku, 1)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "old.ndjson")
	var keepers sync.WaitGroup
	for n := range 2 {
		keepers.Go(func() { retain(t, two[n], ledger.NewArchive(path)) })
	}
	for range 5 {
		mustHold(t, url)
	}
	keepers.Wait()
	close(stop)
	storm.Wait()
	mustHold(t, url)
	if n := len(archivedLines(t, path)); n != orders+len(skus) {
		t.Errorf("%d movements in the archive, want %d", n, orders+len(skus))
	}
	for _, sku := range skus {
		if first := movements(t, two[0], sku)[0]; first != "21 checkpoint 40 0" {
			t.Errorf("%s begins with %q", sku, first)
		}
	}
}
