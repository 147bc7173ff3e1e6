package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestOrdersThereAndBack: 300 orders with the lines A to Z and Z to A, from two processes. Nobody sees a deadlock or a
// conflict.
func TestOrdersThereAndBack(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	cfg := ledger.Config{URL: url, Patience: time.Minute} // the race detector makes a slow work of so many lines
	ledgers := []*ledger.Ledger{start(t, cfg), start(t, cfg)}
	var skus []string
	for c := 'A'; c <= 'Z'; c++ {
		skus = append(skus, string(c))
		stockUp(t, ledgers[0], string(c), 300)
	}
	back := slices.Clone(skus)
	slices.Reverse(back)
	var asking sync.WaitGroup
	for i := range 300 {
		asking.Go(func() {
			list := skus
			if i%2 == 1 {
				list = back
			}
			if _, err := ledgers[i/2%2].Deduct(t.Context(), order(fmt.Sprint(i), list...)); err != nil {
				t.Errorf("order %d: %v", i, err)
			}
		})
	}
	asking.Wait()
	for _, sku := range skus {
		if got := levels(t, ledgers[0], sku); got.OnHand != 0 || got.Version != 301 {
			t.Errorf("got %s", figures(got))
		}
	}
	mustHold(t, url)
}

// TestTwoProcessesShareAHotItem: both want it all the time, duplicates included, and both are served.
func TestTwoProcessesShareAHotItem(t *testing.T) {
	t.Parallel()
	const units = 1000
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, ledgers[0], "hot", units)
	var served [2]atomic.Int64
	var left atomic.Int64
	left.Store(units)
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 5))
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				req := order(fmt.Sprint("o-", i), "hot")
				if _, err := ledgers[n%2].Deduct(t.Context(), req); err != nil {
					t.Error(err)
					return
				}
				served[n%2].Add(1)
				if r.IntN(100) < 8 { // sent once more, to the other process
					out, err := ledgers[1-n%2].Deduct(t.Context(), req)
					if err != nil || !out.Replayed {
						t.Errorf("duplicate: %+v, %v", out, err)
					}
				}
			}
		})
	}
	callers.Wait()
	if got := levels(t, ledgers[0], "hot"); got.OnHand != 0 || got.Version != units+1 {
		t.Errorf("got %s", figures(got))
	}
	// The measure of fairness is for a quiet machine; here neither may starve.
	if a, b := served[0].Load(), served[1].Load(); min(a, b) < units/5 {
		t.Errorf("one process served %d, the other %d", a, b)
	}
	mustHold(t, url)
}

// TestSettingsMeetOrders: the one write that does not go through the queue changes the same row all the time.
func TestSettingsMeetOrders(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, ledgers[0], "A", 1000)
	var work sync.WaitGroup
	for n := range 8 {
		work.Go(func() {
			for i := range 40 {
				if _, err := ledgers[n%2].Deduct(t.Context(), order(fmt.Sprint(n, "-", i), "A")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Go(func() {
		for i := range 60 {
			_, err := ledgers[i%2].Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: at("A"), SafetyStock: stock.Quantity(i + 1)})
			if err != nil {
				t.Error(err)
			}
		}
	})
	work.Wait()
	if got := levels(t, ledgers[0], "A"); got.OnHand != 680 || got.SafetyStock != 60 || got.Version != 1+320+60 {
		t.Errorf("got %s", figures(got))
	}
	mustHold(t, url)
}

// TestAnswersShowNoOldFigures: an operation that changes a deduction, and not all of its items, must not show what its process remembers
// of the others.
func TestAnswersShowNoOldFigures(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	mine, other := openAt(t, url), openAt(t, url)
	stockUp(t, mine, "A", 9)
	stockUp(t, mine, "B", 9)
	hold := order("held", "A", "B")
	hold.Hold = stock.MaxHold / 2
	d := deduct(t, mine, hold)
	first := []stock.LineQuantity{{No: 1, Quantity: 1}}
	commit := func(key string, lines []stock.LineQuantity) *stock.CommitRequest {
		return &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop", Key: key}, ID: d.ID, Lines: lines, KeepRest: true}
	}
	for i, c := range []struct {
		name string
		do   func() (*stock.Outcome, error)
	}{
		{"extend", func() (*stock.Outcome, error) {
			return mine.Extend(t.Context(), &stock.ExtendRequest{Client: "shop", ID: d.ID, Hold: stock.MaxHold / 2})
		}},
		{"commit of one line", func() (*stock.Outcome, error) { return mine.Commit(t.Context(), commit("first", first)) }},
		{"release", func() (*stock.Outcome, error) {
			return mine.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: d.ID})
		}},
		{"release again", func() (*stock.Outcome, error) {
			return mine.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: d.ID})
		}},
	} {
		deduct(t, other, order(c.name, "B"))
		out, err := c.do()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, want := out.Levels[slices.IndexFunc(out.Levels, func(l stock.Levels) bool { return l.SKU == "B" })], levels(t, other, "B")
		if got.Version != want.Version || got.OnHand != want.OnHand || got.Held != want.Held {
			t.Errorf("%d %s shows %s, it is %s", i, c.name, figures(got), figures(want))
		}
	}
	mustHold(t, url)
}

// TestWhatIsGoneIsNotRemembered: a failover takes an item that this process knows. Where the first reading may refuse, because retries are
// expected, it must not refuse on figures of an item that is not there.
func TestWhatIsGoneIsNotRemembered(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "gone", 5)
	stockUp(t, l, "A", 5)
	deduct(t, l, order("of the item", "gone"))
	deduct(t, l, order("done", "A"))
	execute(t, url, "DELETE FROM items WHERE sku = 'gone'")
	more := order("more", "gone")
	more.Lines[0].Quantity = 100
	for {
		began := time.Now()
		deduct(t, l, order("done", "A")) // a retry: for the next second keys are read first
		var unknown *stock.UnknownItemError
		if _, err := l.Deduct(t.Context(), more); !errors.As(err, &unknown) {
			t.Fatalf("got %v", err)
		}
		if time.Since(began) < 900*time.Millisecond {
			return
		}
	}
}
