package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// mark gives an item a low stock mark, and creates it if need be.
func mark(t testing.TB, l *ledger.Ledger, sku string, lowAt stock.Quantity) {
	t.Helper()
	if _, err := l.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: at(sku), LowStockAt: &lowAt}); err != nil {
		t.Fatal(err)
	}
}

// events lists what was told, each as item and version, page by page.
func events(t testing.TB, l *ledger.Ledger, limit int) []string {
	t.Helper()
	told := []string{}
	q := stock.EventQuery{Limit: limit}
	for {
		page, err := l.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			told = append(told, fmt.Sprintf("%s %d: %d of %d", e.Levels.SKU, e.Levels.Version, e.Levels.Available(), e.LowStockAt))
			q.After = e.Place
		}
		if len(page) < limit {
			return told
		}
	}
}

// allEvents lists what was told once all of it can be listed: a transaction of another test on the same server may hold
// it back.
func allEvents(t testing.TB, l *ledger.Ledger, url string) []string {
	t.Helper()
	conn := connect(t, url)
	var told []string
	eventually(t, "all events are listed", func() bool {
		var written int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&written); err != nil {
			t.Fatal(err)
		}
		told = events(t, l, 2)
		return len(told) == written
	})
	return told
}

func receive(t testing.TB, l *ledger.Ledger, key, sku string, units stock.Quantity) {
	t.Helper()
	if _, err := l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed(key), Item: at(sku), Kind: stock.Adjust, Delta: units}); err != nil {
		t.Fatal(err)
	}
}

// TestLowStockIsToldOnce: at the edge, and again only after the item was above its mark; by whatever made it so.
func TestLowStockIsToldOnce(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	mark(t, l, "A", 3)
	expect := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), allEvents(t, l, url)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	receive(t, l, "1", "A", 2)
	expect("a new item begins low")
	receive(t, l, "2", "A", 3)
	expect("above")
	deduct(t, l, order("3", "A"))
	expect("above by one")
	deduct(t, l, order("4", "A"))
	told := []string{"A 4: 3 of 3"}
	expect("at the mark", told...)
	deduct(t, l, order("5", "A"))
	expect("below it", told...)
	receive(t, l, "6", "A", 2)
	hold := order("7", "A")
	hold.Hold = time.Hour
	held := deduct(t, l, hold)
	told = append(told, "A 7: 3 of 3")
	expect("by a hold", told...)
	if _, err := l.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: held.ID}); err != nil {
		t.Fatal(err)
	}
	configure := func(safety stock.Quantity, lowAt *stock.Quantity) {
		t.Helper()
		_, err := l.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: at("A"), SafetyStock: safety, LowStockAt: lowAt})
		if err != nil {
			t.Fatal(err)
		}
	}
	configure(1, ptr(stock.Quantity(3)))
	told = append(told, "A 9: 3 of 3")
	expect("by a safety stock", told...)
	configure(1, nil)
	expect("without a mark", told...)
	configure(1, ptr(stock.Quantity(4)))
	told = append(told, "A 11: 3 of 4")
	expect("by a new mark", told...)
	receive(t, l, "12", "A", 2)
	deduct(t, l, order("13", "A", "A"))
	told = append(told, "A 13: 4 of 4")
	expect("by the first of two lines", told...)
	mustHold(t, url)
}

// TestLowStockUnderLoad: many callers of two processes take and bring, and what is told is what the movements say.
func TestLowStockUnderLoad(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	two := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	skus := []string{"A", "B", "C", "D"}
	for n, sku := range skus[:3] {
		mark(t, two[0], sku, stock.Quantity(n*2))
	}
	for _, sku := range skus {
		stockUp(t, two[0], sku, 6)
	}
	var callers sync.WaitGroup
	for n := range 16 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			for i := range 20 {
				l, key := two[r.IntN(2)], fmt.Sprint(n, " ", i)
				if r.IntN(2) == 0 {
					receive(t, l, key, skus[r.IntN(4)], stock.Quantity(1+r.IntN(2)))
					continue
				}
				_, _ = l.Deduct(t.Context(), order(key, skus[r.IntN(4)], skus[r.IntN(4)])) // may be short
			}
		})
	}
	callers.Wait()
	if told := allEvents(t, two[1], url); len(told) == 0 {
		t.Error("nothing became low")
	}
	mustHold(t, url)
}

// TestLowStockIsToldOnceWhateverIsLost: a batch that is sent again tells nothing twice, and what was not written is not told.
func TestLowStockIsToldOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	direct := openAt(t, database)
	for how, action := range map[string]fault.Action{
		"request lost": fault.LoseRequest, "reply lost": fault.LoseReply, "disconnected": fault.Disconnect,
	} {
		proxy, url := behind(t, database)
		l := start(t, ledger.Config{URL: url, Writers: 1, Patience: 10 * time.Second})
		mark(t, l, how, 3)
		receive(t, l, "stock "+how, how, 5)
		receive(t, l, "warm "+how, how, -1)
		fired := proxy.OnRequest(contains("key of "+how), action)
		receive(t, l, "key of "+how, how, -1)
		happens(t, how, fired)
		deduct(t, l, order(how, how))
	}
	if told := allEvents(t, direct, database); len(told) != 3 {
		t.Errorf("told %q, want one of each item", told)
	}
	mustHold(t, database)
}

// TestEventsAreNotSkipped: what a slow transaction is about to tell holds back what comes after it.
func TestEventsAreNotSkipped(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	for _, sku := range []string{"slow", "fast"} {
		mark(t, l, sku, 3)
		stockUp(t, l, sku, 4)
	}
	slow, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = slow.Exec(t.Context(), `
		INSERT INTO events (item_id, version, on_hand, held, safety_stock, low_stock_at, at, kind)
		SELECT id, 2, 3, 0, 0, 3, now(), 'low-stock' FROM items WHERE sku = 'slow'`)
	if err != nil {
		t.Fatal(err)
	}
	deduct(t, l, order("o", "fast"))
	if told := events(t, l, 10); len(told) != 0 {
		t.Errorf("listed before what comes before it: %q", told)
	}
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are listed", func() bool { return len(events(t, l, 10)) == 2 })
	if diff := cmp.Diff([]string{"slow 2: 3 of 3", "fast 2: 3 of 3"}, events(t, l, 1)); diff != "" {
		t.Errorf("the order is another one (-want +got):\n%s", diff)
	}
	location := stock.Location("york")
	if page, err := l.Events(t.Context(), stock.EventQuery{Location: &location, Limit: 10}); err != nil || len(page) != 0 {
		t.Errorf("of another location: %v, %v", page, err)
	}
}
