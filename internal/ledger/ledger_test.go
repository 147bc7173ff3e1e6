package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// open starts a ledger on a database of its own.
func open(t testing.TB) *ledger.Ledger {
	t.Helper()
	return openAt(t, sandbox.Database(t))
}

// openAt starts a ledger on a database, one of several perhaps.
func openAt(t testing.TB, url string) *ledger.Ledger {
	t.Helper()
	return start(t, ledger.Config{URL: url})
}

func start(t testing.TB, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func at(sku string) stock.Item {
	return stock.Item{SKU: stock.SKU(sku), Location: stock.DefaultLocation}
}

func keyed(key string) stock.Keyed { return stock.Keyed{Client: "shop", Key: key} }

// stockUp creates an item with units on hand.
func stockUp(t testing.TB, l *ledger.Ledger, sku string, units stock.Quantity) {
	t.Helper()
	_, err := l.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: at(sku), MustBeNew: true})
	if err != nil && !errors.Is(err, stock.ErrPreconditionFailed) {
		t.Fatal(err)
	}
	if units == 0 {
		return
	}
	_, err = l.Adjust(t.Context(), &stock.AdjustRequest{
		Keyed: keyed("stock " + sku), Item: at(sku), Kind: stock.Receive, Delta: units,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// order asks for one unit of each SKU.
func order(id string, skus ...string) *stock.DeductRequest {
	r := &stock.DeductRequest{Keyed: keyed(id), OrderID: id}
	for _, sku := range skus {
		r.Lines = append(r.Lines, stock.WantedLine{Item: at(sku), Quantity: 1})
	}
	return r
}

// deduct does what must succeed.
func deduct(t testing.TB, l *ledger.Ledger, r *stock.DeductRequest) *stock.Deduction {
	t.Helper()
	out, err := l.Deduct(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return &out.Deduction
}

func levels(t testing.TB, l *ledger.Ledger, sku string) stock.Levels {
	t.Helper()
	s, err := l.Item(t.Context(), at(sku))
	if err != nil {
		t.Fatal(err)
	}
	return s.Levels
}

// figures of an item; printed by itself it shows no more than its name.
func figures(l stock.Levels) string {
	return fmt.Sprintf("%s: on hand %d, held %d, safety stock %d, version %d", l.Item, l.OnHand, l.Held, l.SafetyStock, l.Version)
}

func TestDeductTakesStockOnce(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 5)
	first, err := l.Deduct(t.Context(), order("o-1", "A"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := l.Deduct(t.Context(), order("o-1", "A"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Replayed || !again.Replayed || first.Deduction.ID != again.Deduction.ID {
		t.Errorf("first %+v\nagain %+v", first, again)
	}
	if got := levels(t, l, "A"); got.OnHand != 4 || got.Version != 2 {
		t.Errorf("got %s", figures(got))
	}
	other := order("o-1", "A")
	other.Lines[0].Quantity = 2
	if _, err := l.Deduct(t.Context(), other); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("same key, other input: %v", err)
	}
	second := order("o-1", "A")
	second.Key = "another key"
	var live *stock.OrderError
	if _, err := l.Deduct(t.Context(), second); !errors.As(err, &live) || live.ID != first.Deduction.ID {
		t.Errorf("same order, other key: %v", err)
	}
}

// TestKeysAndOrdersAreTheClientsOwn: another client's key, order or deduction is none of this one's business.
func TestKeysAndOrdersAreTheClientsOwn(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 5)
	mine := deduct(t, l, order("o-1", "A"))
	theirs := order("o-1", "A")
	theirs.Client = "other"
	if got := deduct(t, l, theirs); got.ID == mine.ID {
		t.Errorf("two clients share deduction %s", got.ID)
	}
	for what, err := range map[string]error{
		"read":     second(l.Deduction(t.Context(), "other", mine.ID)),
		"commit":   second(l.Commit(t.Context(), &stock.CommitRequest{Keyed: stock.Keyed{Client: "other"}, ID: mine.ID})),
		"release":  second(l.Release(t.Context(), &stock.ReleaseRequest{Client: "other", ID: mine.ID})),
		"extend":   second(l.Extend(t.Context(), &stock.ExtendRequest{Client: "other", ID: mine.ID, Hold: time.Hour})),
		"return":   second(l.Return(t.Context(), &stock.ReturnRequest{Keyed: stock.Keyed{Client: "other", Key: "k"}, ID: mine.ID})),
		"nobody's": second(l.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: uuid.New()})),
	} {
		if !errors.Is(err, stock.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := levels(t, l, "A"); got.OnHand != 3 {
		t.Errorf("got %s", figures(got))
	}
}

func second[T any](_ T, err error) error { return err }

func TestRecallFindsWhatWasDone(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 5)
	if out, err := l.Recall(t.Context(), order("o-1", "A")); out != nil || err != nil {
		t.Errorf("before: %+v, %v", out, err)
	}
	d := deduct(t, l, order("o-1", "A"))
	if out, err := l.Recall(t.Context(), order("o-1", "A")); err != nil || !out.Replayed || out.Deduction.ID != d.ID {
		t.Errorf("after: %+v, %v", out, err)
	}
	if _, err := l.Recall(t.Context(), order("o-1", "A", "A")); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("same key, other input: %v", err)
	}
	other := order("o-1", "A")
	other.Key = "another key"
	if _, err := l.Recall(t.Context(), other); !errors.Is(err, stock.ErrOrderAlreadyDeducted) {
		t.Errorf("other key, same order: %v", err)
	}
	if got := levels(t, l, "A"); got.OnHand != 4 {
		t.Errorf("recalling changed %s", figures(got))
	}
}

// TestLargestOrder: 1,000 lines are one batch, whole or absent.
func TestLargestOrder(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := start(t, ledger.Config{URL: url, Patience: time.Minute})
	skus := make([]string, stock.MaxLines)
	for i := range skus {
		skus[i] = fmt.Sprintf("S-%04d", i)
	}
	execute(t, url, "INSERT INTO items (sku, location, on_hand) SELECT sku, 'default', 2 FROM unnest($1::text[]) sku", skus)
	started := time.Now()
	out, err := l.Deduct(t.Context(), order("large", skus...))
	if err != nil || len(out.Deduction.Lines) != stock.MaxLines || len(out.Levels) != stock.MaxLines {
		t.Fatalf("%v", err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	twice := order("larger", skus...)
	for _, i := range []int{3, 997} {
		twice.Lines[i].Quantity = 2
	}
	var short *stock.ShortError
	if _, err := l.Deduct(t.Context(), twice); !errors.As(err, &short) || len(short.Lines) != 2 || short.Lines[1].Line != 997 {
		t.Errorf("two lines short: %v", err)
	}
	if got := levels(t, l, skus[0]); got.OnHand != 1 || got.Version != 1 {
		t.Errorf("got %s", figures(got))
	}
}

// TestPoisonedRequestHurtsNoOther: a request that breaks a rule of the database is found and refused alone, and what
// shared its batch is carried out.
func TestPoisonedRequestHurtsNoOther(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := start(t, ledger.Config{URL: url, Writers: 1})
	stockUp(t, l, "A", 50)
	unblock := blockItem(t, url, "A")
	results := make(chan error, 30)
	for i := range 30 {
		r := order(fmt.Sprint(i), "A")
		if i == 7 {
			r.Lines[0].Quantity = -1 // no caller may ask for it: the vocabulary forbids it
		}
		go func() {
			_, err := l.Deduct(t.Context(), r)
			if (err == nil) == (i == 7) {
				results <- fmt.Errorf("request %d: %w", i, err)
				return
			}
			results <- nil
		}()
	}
	unblock()
	for range 30 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got := levels(t, l, "A"); got.OnHand != 21 {
		t.Errorf("got %s", figures(got))
	}
	mustHold(t, url)
}

// BenchmarkDeduct is 64 callers that take one unit each, of one item or of many.
func BenchmarkDeduct(b *testing.B) {
	for _, items := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			l := open(b)
			stockUpMany(b, l, items)
			var next atomic.Int64
			var callers sync.WaitGroup
			b.ResetTimer()
			started := time.Now()
			for range 64 {
				callers.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if _, err := l.Deduct(b.Context(), order(fmt.Sprint(i), fmt.Sprint(i%int64(items)))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric(float64(b.N)/time.Since(started).Seconds(), "deductions/s")
		})
	}
}

// stockUpMany makes items 0, 1, 2 … with more than anybody will take.
func stockUpMany(b *testing.B, l *ledger.Ledger, items int) {
	b.Helper()
	const atOnce = 64
	var group sync.WaitGroup
	for first := range min(atOnce, items) {
		group.Go(func() {
			for i := first; i < items; i += atOnce {
				stockUp(b, l, fmt.Sprint(i), stock.MaxLineQuantity)
			}
		})
	}
	group.Wait()
}
