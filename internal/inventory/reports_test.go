package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestReports has what users of other systems reported, each with our answer. Reports that have a test elsewhere:
//
//	a webhook is retried under another key     TestRetryOfTheLastUnit; httpapi: TestAnOrderHasOneLiveDeduction
//	a hundred duplicates take a hundred holds  TestDuplicatesShareATicket
//	a retry is another request, for the order  httpapi: TestSameKeySameInputIsAReplay;
//	of its members or a time the server made   stock: TestFingerprintsTellInputsApart, TestFingerprintsLeaveOutWhatIsNoInput
//	refunds in parallel exceed what was sold   ledger: TestReturnsNeverExceed, for forty at once from two processes
//	a stampede sells more than there is        cmd/holdfast: TestStampede and those after it
//	a customer passes his limit in parallel    TestCustomerStampedeEndsAtTheGate; ledger: TestCustomerLimitAcrossProcesses
//	old movements are removed under retries    ledger: TestRetentionDuringAReplayStorm
func TestReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	for _, report := range []struct {
		name string
		try  func(*testing.T, *world, *inventory.Service, string)
	}{
		{"the last item is sold twice", lastItem},
		{"one SKU on two lines passes against too few", twoLines},
		{"an own hold is in the way of its owner's commit", ownHold},
		{"a hold that was refused can be committed", refusedHold},
		{"doing it twice adds stock twice", doneTwice},
		{"cancelling after a part was committed releases too much", partThenCancel},
		{"three parallel refunds exceed what was sold", parallelRefunds},
		{"a restock is lost among parallel deductions", restock},
		{"an absolute set overwrites what happened since it was read", staleSet},
		{"a refusal is recorded as being in progress", refusalLeavesNothing},
		{"an order that fails on its third line keeps the first two", thirdLine},
		{"an order that is short of one item holds up another", shortElsewhere},
		{"an order over several locations is taken in part", severalPlaces},
		{"a SKU that is created again inherits what was held of it", createdAgain},
		{"a customer has more than his limit by several orders at once", customersOrders},
	} {
		t.Run(report.name, func(t *testing.T) {
			t.Parallel()
			report.try(t, w, s, t.Name())
		})
	}
}

// parallel runs n of do at once and counts those without an error; other errors than want fail the test.
func parallel(t *testing.T, n int, want error, do func(i int) error) int {
	t.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			switch err := do(i); {
			case err == nil:
				done.Add(1)
			case want == nil || !errors.Is(err, want):
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	group.Wait()
	return int(done.Load())
}

// sku names an item of a report.
func sku(report, name string) string { return report + " " + name }

func holdOf(id string, units stock.Quantity, skus ...string) *stock.DeductRequest {
	r := order(id, skus...)
	r.Hold = time.Hour
	for i := range r.Lines {
		r.Lines[i].Quantity = units
	}
	return r
}

func lastItem(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 1)
	sold := parallel(t, 50, stock.ErrInsufficientStock, func(i int) error {
		_, err := s.Deduct(t.Context(), order(fmt.Sprint(report, i), a))
		return err
	})
	if sold != 1 {
		t.Errorf("sold %d times", sold)
	}
	w.onHand(t, a, 0)
}

func twoLines(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 5)
	r := order(report, a, a)
	r.Lines[0].Quantity, r.Lines[1].Quantity = 3, 3
	var short *stock.ShortError
	if _, err := s.Deduct(t.Context(), r); !errors.As(err, &short) || len(short.Lines) != 2 || short.Lines[0].Requested != 6 || short.Lines[1].Available != 5 {
		t.Errorf("got %v", err)
	}
	w.onHand(t, a, 5)
	r.Lines[1].Quantity = 2
	deduct(t, s, r)
	w.onHand(t, a, 0)
}

func ownHold(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 5)
	held := deduct(t, s, holdOf(report, 5, a))
	if _, err := s.Deduct(t.Context(), order(report+"other", a)); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("another order: %v", err)
	}
	out, err := s.Commit(t.Context(), &stock.CommitRequest{Keyed: keyed(""), ID: held.Deduction.ID})
	if err != nil || out.Deduction.State != stock.Committed {
		t.Errorf("got %+v, %v", out, err)
	}
	w.onHand(t, a, 0)
}

func refusedHold(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 1)
	if out, err := s.Deduct(t.Context(), holdOf(report, 2, a)); !errors.Is(err, stock.ErrInsufficientStock) || out != nil {
		t.Errorf("got %+v, %v", out, err)
	}
	if _, err := s.CommitOrder(t.Context(), &stock.OrderRequest{Keyed: keyed(""), OrderID: report}); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("there is something to commit: %v", err)
	}
	w.onHand(t, a, 1)
}

func doneTwice(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 10)
	taken := deduct(t, s, holdOf(report+"taken", 2, a)).Deduction.ID
	cancelled := deduct(t, s, holdOf(report+"cancelled", 2, a)).Deduction.ID
	back := deduct(t, s, order(report+"back", a)).Deduction.ID
	for what, do := range map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error {
			return second(s.Commit(ctx, &stock.CommitRequest{Keyed: keyed(""), ID: taken}))
		},
		"release": func(ctx context.Context) error {
			return second(s.Release(ctx, &stock.ReleaseRequest{Client: "shop", ID: cancelled}))
		},
		"return": func(ctx context.Context) error {
			return second(s.Return(ctx, &stock.ReturnRequest{Keyed: keyed(report + "return"), ID: back}))
		},
		"void": func(ctx context.Context) error { return second(s.Void(ctx, keyed(report+"taken"))) },
	} {
		if n := parallel(t, 5, nil, func(int) error { return do(t.Context()) }); n != 5 {
			t.Errorf("%s: %d of 5 were answered", what, n)
		}
	}
	w.onHand(t, a, 8)
}

func second[T any](_ T, err error) error { return err }

func partThenCancel(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 10)
	id := deduct(t, s, holdOf(report, 10, a)).Deduction.ID
	seven := &stock.CommitRequest{Keyed: keyed(report + "seven"), ID: id, Lines: []stock.LineQuantity{{No: 1, Quantity: 7}}, KeepRest: true}
	for range 2 {
		if _, err := s.Commit(t.Context(), seven); err != nil {
			t.Fatal(err)
		}
	}
	for again := range 2 {
		out, err := s.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: id})
		if err != nil || out.Replayed != (again == 1) || out.Deduction.Lines[0].Released() != 3 || out.Deduction.Lines[0].Committed != 7 {
			t.Errorf("time %d: %+v, %v", again, out, err)
		}
	}
	w.onHand(t, a, 3)
}

func parallelRefunds(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 10)
	r := order(report, a)
	r.Lines[0].Quantity = 10
	id := deduct(t, s, r).Deduction.ID
	done := parallel(t, 3, stock.ErrReturnExceeds, func(i int) error {
		return second(s.Return(t.Context(), &stock.ReturnRequest{
			Keyed: keyed(fmt.Sprint(report, i)), ID: id, Lines: []stock.LineQuantity{{No: 1, Quantity: 5}},
		}))
	})
	if done != 2 {
		t.Errorf("%d of 3 refunds of half of it were booked", done)
	}
	w.onHand(t, a, 10)
}

func restock(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 60)
	var group sync.WaitGroup
	group.Go(func() {
		_, err := s.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed(report + "restock"), Item: at(a), Kind: stock.Receive, Delta: 50})
		if err != nil {
			t.Error(err)
		}
	})
	sold := parallel(t, 100, stock.ErrInsufficientStock, func(i int) error {
		return second(s.Deduct(t.Context(), order(fmt.Sprint(report, i), a)))
	})
	group.Wait()
	if sold < 60 {
		t.Errorf("only %d were sold", sold)
	}
	w.onHand(t, a, stock.Quantity(110-sold))
}

func staleSet(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 10)
	read, err := s.Item(t.Context(), at(a))
	if err != nil {
		t.Fatal(err)
	}
	deduct(t, s, order(report, a))
	target := stock.Quantity(12)
	set := &stock.AdjustRequest{Keyed: keyed(report + "set"), Item: at(a), Kind: stock.Count, SetTo: &target, IfVersion: &read.Version}
	var stale *stock.PreconditionError
	if _, err := s.Adjust(t.Context(), set); !errors.As(err, &stale) || stale.Levels.OnHand != 9 {
		t.Errorf("got %v", err)
	}
	w.onHand(t, a, 9)
}

func refusalLeavesNothing(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 0)
	for range 3 {
		if _, err := s.Deduct(t.Context(), order(report, a)); !errors.Is(err, stock.ErrInsufficientStock) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Operation(t.Context(), keyed(report)); !errors.Is(err, stock.ErrNotFound) {
			t.Errorf("the key was used: %v", err)
		}
	}
	if _, err := s.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed(report + "in"), Item: at(a), Kind: stock.Receive, Delta: 1}); err != nil {
		t.Fatal(err)
	}
	if out := deduct(t, s, order(report, a)); out.Replayed {
		t.Error("the same key was answered as a replay")
	}
	w.onHand(t, a, 0)
}

func thirdLine(t *testing.T, w *world, s *inventory.Service, report string) {
	a, b, c := sku(report, "A"), sku(report, "B"), sku(report, "C")
	w.stockUp(t, a, 1)
	w.stockUp(t, b, 1)
	w.stockUp(t, c, 0)
	var short *stock.ShortError
	if _, err := s.Deduct(t.Context(), order(report, a, b, c)); !errors.As(err, &short) || len(short.Lines) != 1 || short.Lines[0].Line != 2 {
		t.Errorf("got %v", err)
	}
	for _, untouched := range []string{a, b} {
		w.givesBack(t, at(untouched))
		w.onHand(t, untouched, 1)
	}
	deduct(t, s, order(report+"other", a, b)) // at once: nothing is in its way
}

func shortElsewhere(t *testing.T, w *world, s *inventory.Service, report string) {
	a, b := sku(report, "A"), sku(report, "B")
	const rounds = 20
	w.stockUp(t, a, rounds)
	w.stockUp(t, b, 0)
	for i := range rounds { // each time somebody takes what is left of the round while an order in vain wants it as well
		var both sync.WaitGroup
		both.Go(func() {
			vain := order(fmt.Sprint(report, "vain", i), a, b)
			vain.Lines[0].Quantity = stock.Quantity(rounds - i)
			if _, err := s.Deduct(t.Context(), vain); !errors.Is(err, stock.ErrInsufficientStock) {
				t.Errorf("round %d: %v", i, err)
			}
		})
		both.Go(func() {
			if _, err := s.Deduct(t.Context(), order(fmt.Sprint(report, i), a)); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		})
		both.Wait()
		if t.Failed() {
			return
		}
	}
	w.onHand(t, a, 0)
}

func severalPlaces(t *testing.T, w *world, s *inventory.Service, report string) {
	a, b := sku(report, "A"), sku(report, "B")
	east, west := stock.Item{SKU: stock.SKU(a), Location: "east"}, stock.Item{SKU: stock.SKU(a), Location: "west"}
	w.stockUpAt(t, east, 3)
	w.stockUpAt(t, west, 2)
	w.stockUp(t, b, 1)
	r := order(report, a, a, b, a)
	r.Lines[0].Item, r.Lines[0].Quantity = east, 2
	r.Lines[1].Item, r.Lines[1].Quantity = west, 2
	r.Lines[3].Item, r.Lines[3].Quantity = stock.Item{SKU: stock.SKU(a)}, 2 // one is left, in the east
	r.Lines[3].Sourcing = &stock.Sourcing{Locations: []stock.Location{"west", "east"}, Split: true}
	var short *stock.ShortError
	if _, err := s.Deduct(t.Context(), r); !errors.As(err, &short) || !slices.ContainsFunc(short.Lines, func(l stock.ShortLine) bool { return l.Line == 3 }) {
		t.Errorf("got %v", err)
	}
	for _, item := range []stock.Item{east, west, at(b)} {
		w.givesBack(t, item)
		if got, err := s.Item(t.Context(), item); err != nil || got.Version != 1 {
			t.Errorf("%s was touched: %+v, %v", item, got, err)
		}
	}
	r.Lines[3].Quantity = 1
	out := deduct(t, s, r)
	for i, want := range []stock.Item{east, west, at(b), east} {
		if got := out.Deduction.Lines[i]; got.Item != want || got.Committed != r.Lines[i].Quantity {
			t.Errorf("line %d: %+v, want %s", i, got, want)
		}
	}
}

// createdAgain: no item is ever deleted, so that its versions never begin again and every hold keeps its item. Whoever creates one that is there
// is told so, or changes its settings and nothing else.
func createdAgain(t *testing.T, w *world, s *inventory.Service, report string) {
	a := sku(report, "A")
	w.stockUp(t, a, 5)
	held := deduct(t, s, holdOf(report, 3, a))
	create := &stock.ConfigureRequest{Client: "shop", Item: at(a), Label: "new", SafetyStock: 1, MustBeNew: true}
	var exists *stock.PreconditionError
	if _, err := s.Configure(t.Context(), create); !errors.As(err, &exists) || exists.Levels.Held != 3 || exists.Levels.Version != 2 {
		t.Errorf("created as new: %v", err)
	}
	create.MustBeNew = false
	done, err := s.Configure(t.Context(), create)
	if err != nil || done.Created || done.Stock.OnHand != 5 || done.Stock.Held != 3 || done.Stock.Version != 3 || done.Stock.Available() != 1 {
		t.Errorf("created: %+v, %v", done, err)
	}
	if _, err := s.Commit(t.Context(), &stock.CommitRequest{Keyed: keyed(""), ID: held.Deduction.ID}); err != nil {
		t.Errorf("the old hold: %v", err)
	}
	w.onHand(t, a, 2)
}

func customersOrders(t *testing.T, w *world, s *inventory.Service, report string) {
	a, b := sku(report, "A"), sku(report, "B")
	w.stockUp(t, a, 100)
	w.stockUp(t, b, 100)
	limited := func(name string, skus ...string) *stock.DeductRequest {
		r := order(report+name, skus...)
		r.Customer, r.CustomerLimit = report, 4
		return r
	}
	deduct(t, s, limited("first", a))
	got := parallel(t, 30, stock.ErrCustomerLimit, func(i int) error {
		return second(s.Deduct(t.Context(), limited(fmt.Sprint(i), a, b)))
	})
	if got != 3 {
		t.Errorf("he got %d more", got)
	}
	if _, err := s.Deduct(t.Context(), limited("last", b)); err != nil {
		t.Errorf("of the other item he has %d of 4: %v", got, err)
	}
	w.onHand(t, a, 96)
	w.onHand(t, b, 96)
}
