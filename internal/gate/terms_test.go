package gate_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func take(t *testing.T, g *gate.Gate, w gate.Wish) gate.Answer {
	t.Helper()
	return g.TakeAll(t.Context(), []gate.Wish{w})[0]
}

// TestLimitCountsWhatIsUnderWay: what the ledger said a customer has, and the tickets of his other orders, with and
// without the ledger having spoken; another customer is none of it, and a refused line leaves the others alone.
func TestLimitCountsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 100)
	s.put("B", 1, 100)
	ann, has := stock.Customer{Client: "shop", Name: "ann"}, stock.Quantity(0)
	g := open(t, shared(t), s, gate.Config{Count: func(_ context.Context, of []stock.CustomerUnits) ([]stock.CustomerUnits, error) {
		for i := range of {
			of[i].Units, of[i].Version, of[i].Epoch = has, 1, 1
		}
		return of, nil
	}})
	wish := func(n int, units stock.Quantity, customer stock.Customer, skus ...string) gate.Wish {
		return gate.Wish{Ticket: order(n), Lines: lines(units, skus...), Terms: gate.Terms{Customer: customer, Limit: 3}}
	}
	g.Count([]stock.CustomerUnits{{Customer: ann, Item: item("A"), Version: 1, Epoch: 1}})
	expect(t, take(t, g, wish(1, 2, ann, "A")), gate.Granted)
	expect(t, take(t, g, wish(1, 2, ann, "A")), gate.Shared)
	a := take(t, g, wish(2, 2, ann, "B", "A"))
	expect(t, a, gate.Limited)
	want := []stock.LimitLine{{Line: 1, Item: item("A"), Requested: 2, Has: 2, Limit: 3}}
	if diff := cmp.Diff(want, a.Limited); diff != "" {
		t.Error(diff)
	}
	if f := peek(t, g, "B"); len(f.Tickets) != 0 {
		t.Errorf("the other line has tickets: %+v", f.Tickets)
	}
	expect(t, take(t, g, wish(3, 3, stock.Customer{Client: "shop", Name: "bob"}, "A")), gate.Granted)
	expect(t, take(t, g, wish(4, 1, ann, "A")), gate.Granted)
	g.Drop(wish(1, 2, ann, "A"))
	expect(t, take(t, g, wish(5, 2, ann, "A")), gate.Granted)
	g.Count([]stock.CustomerUnits{{Customer: ann, Item: item("A"), Units: 2, Version: 2, Epoch: 1}})
	expect(t, take(t, g, wish(6, 2, ann, "A")), gate.Limited)
	expect(t, take(t, g, wish(7, 1, ann, "A")), gate.Granted)
}

// TestPartialTakesWhatThereIs, of each line, and is short only when nothing is anywhere.
func TestPartialTakesWhatThereIs(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 5)
	s.put("B", 1, 0)
	g := open(t, shared(t), s, gate.Config{})
	expect(t, take(t, g, gate.Wish{Ticket: order(0), Lines: lines(1, "A", "B")}), gate.Short) // both are known now
	partial := func(n int, skus ...string) gate.Wish {
		return gate.Wish{Ticket: order(n), Lines: lines(3, skus...), Terms: gate.Terms{Partial: true}}
	}
	expect(t, take(t, g, partial(1, "A", "B", "A")), gate.Granted)
	if f := peek(t, g, "A"); f.Outstanding != 5 {
		t.Errorf("got %+v", f)
	}
	a := take(t, g, partial(2, "B", "A"))
	expect(t, a, gate.Short)
	if len(a.Short) != 2 {
		t.Errorf("short lines %+v", a.Short)
	}
	if a := take(t, g, partial(3, "B", "no such")); a.Reason != gate.Optional {
		t.Errorf("one does not exist: %+v", a)
	}
	g.Drop(partial(1, "A", "B", "A"))
	expect(t, take(t, g, partial(2, "B", "A")), gate.Granted)
}
