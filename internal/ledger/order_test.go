package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// part holds, or takes, one unit of each SKU as a part of an order.
func part(orderID, name string, hold time.Duration, skus ...string) *stock.DeductRequest {
	r := order(orderID, skus...)
	r.Keyed, r.Part, r.Hold = keyed(orderID+"/"+name), name, hold
	return r
}

func ofOrder(id string) *stock.OrderRequest {
	return &stock.OrderRequest{Keyed: stock.Keyed{Client: "shop"}, OrderID: id}
}

func states(out *stock.OrderOutcome) (all string) {
	for i := range out.Deductions {
		all += string(out.Deductions[i].Deduction.State) + " "
	}
	return all
}

// TestAnOrderIsChangedAsOne: all its deductions, or none.
func TestAnOrderIsChangedAsOne(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 10)
	stockUp(t, l, "B", 10)
	for i := range 3 {
		deduct(t, l, part("o", fmt.Sprint(i), time.Hour, "A", "B"))
	}
	for again := range 2 {
		out, err := l.CommitOrder(t.Context(), ofOrder("o"))
		if err != nil || states(out) != "committed committed committed " || out.Replayed != (again == 1) {
			t.Fatalf("commit: %+v, %v", out, err)
		}
	}
	if _, err := l.ReleaseOrder(t.Context(), ofOrder("o")); !errors.Is(err, stock.ErrWrongState) {
		t.Errorf("release of what is committed: %v", err)
	}
	deduct(t, l, part("o", "late", time.Hour, "A")) // is no part of what came back
	back := ofOrder("o")
	back.Key, back.Reason = "back", "all of it"
	for again := range 2 {
		out, err := l.ReturnOrder(t.Context(), back)
		if err != nil || out.Replayed != (again == 1) || out.Deductions[0].Deduction.State != stock.Returned {
			t.Fatalf("return: %+v, %v", out, err)
		}
	}
	other := ofOrder("o")
	other.Key = "back"
	if _, err := l.ReturnOrder(t.Context(), other); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("the same key for another reason: %v", err)
	}
	other.Key = "once more"
	if _, err := l.ReturnOrder(t.Context(), other); !errors.Is(err, stock.ErrWrongState) {
		t.Errorf("nothing is left to come back: %v", err)
	}
	if op, err := l.Operation(t.Context(), keyed("back")); err != nil || op.Kind != stock.ReturnOrderOperation || len(op.Outcomes) != 4 {
		t.Errorf("the key: %+v, %v", op, err)
	}
	if out, err := l.ReleaseOrder(t.Context(), ofOrder("o")); err != nil || states(out) != "released " {
		t.Errorf("release: %+v, %v", out, err)
	}
	if _, err := l.CommitOrder(t.Context(), ofOrder("nobody's")); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("no such order: %v", err)
	}
	theirs := ofOrder("o")
	theirs.Client = "other"
	if _, err := l.ReleaseOrder(t.Context(), theirs); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("another client's order: %v", err)
	}
	for _, sku := range []string{"A", "B"} {
		if got := levels(t, l, sku); got.OnHand != 10 || got.Held != 0 {
			t.Errorf("got %s", figures(got))
		}
	}
	mustHold(t, url)
}

// TestAnOrderWithAnExpiredPartIsNotCommitted, swept or not, and its other parts stay as they are.
func TestAnOrderWithAnExpiredPartIsNotCommitted(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{true, false} {
		t.Run(fmt.Sprintf("swept=%v", swept), func(t *testing.T) {
			t.Parallel()
			url := sandbox.Database(t)
			l := openAt(t, url)
			stockUp(t, l, "A", 10)
			deduct(t, l, part("o", "a", time.Hour, "A"))
			over := deduct(t, l, part("o", "b", time.Hour, "A"))
			execute(t, url, "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", over.ID)
			if swept {
				endAll(t, l)
			}
			var expired *stock.ExpiredError
			if _, err := l.CommitOrder(t.Context(), ofOrder("o")); !errors.As(err, &expired) || expired.Deduction.ID != over.ID {
				t.Errorf("got %v", err)
			}
			if got := levels(t, l, "A"); got.OnHand != 10 {
				t.Errorf("got %s", figures(got))
			}
			// Held anew, the part counts, and the one before does not.
			again := part("o", "b", time.Hour, "A")
			again.Key = "again"
			deduct(t, l, again)
			if out, err := l.CommitOrder(t.Context(), ofOrder("o")); err != nil || states(out) != "committed committed " {
				t.Errorf("got %+v, %v", out, err)
			}
			mustHold(t, url)
		})
	}
}

// TestAnOrderIsCommittedOrReleased: both at once, from two processes, with single commits in between. Whatever comes
// of it, no order is in two states, and nothing is given back twice.
func TestAnOrderIsCommittedOrReleased(t *testing.T) {
	t.Parallel()
	const orders = 60
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, ledgers[0], "A", 2*orders)
	var committed, released atomic.Int64
	var racing sync.WaitGroup
	for i := range orders {
		racing.Go(func() {
			id := fmt.Sprint("o-", i)
			one := deduct(t, ledgers[0], part(id, "1", time.Hour, "A"))
			deduct(t, ledgers[0], part(id, "2", time.Hour, "A"))
			var commit, release, single error
			var both sync.WaitGroup
			both.Go(func() { commit = second(ledgers[0].CommitOrder(t.Context(), ofOrder(id))) })
			both.Go(func() { release = second(ledgers[1].ReleaseOrder(t.Context(), ofOrder(id))) })
			if i%3 == 0 {
				both.Go(func() {
					single = second(ledgers[i%2].Commit(t.Context(), &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: one.ID}))
				})
			}
			both.Wait()
			all, err := ledgers[0].Order(t.Context(), "shop", id)
			switch {
			case err != nil || len(all) != 2:
				t.Errorf("%s: %+v, %v", id, all, err)
			case all[0].State == stock.Committed && all[1].State == stock.Committed && commit == nil && errors.Is(release, stock.ErrWrongState):
				committed.Add(1)
			case all[0].State == stock.Released && all[1].State == stock.Released && release == nil && errors.Is(commit, stock.ErrWrongState) &&
				(single == nil) == (i%3 != 0):
				released.Add(1)
			default:
				t.Errorf("%s is %s and %s; commit: %v, release: %v, single: %v", id, all[0].State, all[1].State, commit, release, single)
			}
		})
	}
	racing.Wait()
	t.Logf("%d committed, %d released", committed.Load(), released.Load())
	if got := levels(t, ledgers[0], "A"); got.OnHand != stock.Quantity(2*orders-2*committed.Load()) || got.Held != 0 {
		t.Errorf("%d committed, %d released: %s", committed.Load(), released.Load(), figures(got))
	}
	mustHold(t, url)
}

// TestAnOrderTooLargeIsChangedOneByOne: what is one change is one statement, which has a limit.
func TestAnOrderTooLargeIsChangedOneByOne(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 10_000)
	skus := make([]string, stock.MaxLines)
	for i := range skus {
		skus[i] = "A"
	}
	for i := range 3 {
		deduct(t, l, part("o", fmt.Sprint(i), time.Hour, skus...))
		if i == 1 {
			if out, err := l.CommitOrder(t.Context(), ofOrder("o")); err != nil || len(out.Deductions) != 2 {
				t.Fatalf("%d lines: %v", 2*stock.MaxLines, err)
			}
		}
	}
	if _, err := l.CommitOrder(t.Context(), ofOrder("o")); !errors.Is(err, stock.ErrInvalidField) {
		t.Errorf("%d lines: %v", 3*stock.MaxLines, err)
	}
}
