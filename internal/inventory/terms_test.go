package inventory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestCustomerStampedeEndsAtTheGate: while the ledger has not answered one order of a customer who may have one more, his
// others are refused without it. What he gives back he may have again at once.
func TestCustomerStampedeEndsAtTheGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 100)
	limited := func(id string) *stock.DeductRequest {
		r := order(id, "A")
		r.Customer, r.CustomerLimit, r.Hold = "ann", 2, time.Hour
		return r
	}
	first := deduct(t, s, limited("first"))
	unblock := w.block(t, "A")
	answers := make(chan error)
	for i := range 50 {
		go func() {
			_, err := s.Deduct(t.Context(), limited(fmt.Sprint(i)))
			answers <- err
		}()
	}
	for range 49 {
		var over *stock.LimitError
		if err := <-answers; !errors.As(err, &over) || over.Lines[0].Has < 1 || over.Lines[0].Limit != 2 {
			t.Errorf("one more than he may have: %v", err)
		}
	}
	unblock()
	if err := <-answers; err != nil {
		t.Error(err)
	}
	if _, err := s.Deduct(t.Context(), limited("too many")); !errors.Is(err, stock.ErrCustomerLimit) {
		t.Errorf("he has two: %v", err)
	}
	if _, err := s.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: first.Deduction.ID}); err != nil {
		t.Fatal(err)
	}
	deduct(t, s, limited("again"))
	if again := deduct(t, s, limited("again")); !again.Replayed {
		t.Error("done twice")
	}
	w.due(t)
	patiently(t, s, limited("when the others are over"))
}

// patiently deducts what the gate may refuse for as long as what it was told counts as fresh.
func patiently(t *testing.T, s *inventory.Service, r *stock.DeductRequest) (out *stock.Outcome) {
	t.Helper()
	eventually(t, r.OrderID, 20*time.Second, func() bool {
		var err error
		out, err = s.Deduct(t.Context(), r)
		return err == nil
	})
	return out
}

// TestPartialOrderHoldsWhatThereIs at the gate until the ledger has answered, and is refused only when nothing is there.
func TestPartialOrderHoldsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 6)
	w.stockUp(t, "B", 0)
	deduct(t, s, order("before", "A"))
	partial := func(id string) *stock.DeductRequest {
		r := order(id, "A", "B", "A")
		r.Lines[2].Quantity, r.AllowPartial = 7, true
		return r
	}
	unblock := w.block(t, "A")
	answered := make(chan *stock.Outcome)
	go func() { answered <- deduct(t, s, partial("o")) }()
	eventually(t, "a ticket for what there is", 30*time.Second, func() bool {
		held := w.tickets(t, "A")
		return len(held) == 1 && held[0].Quantity == 5
	})
	if _, err := s.Deduct(t.Context(), order("another", "A")); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("all of it is held: %v", err)
	}
	unblock()
	d := (<-answered).Deduction
	if len(d.Lines) != 3 || d.Lines[0].Missing != 0 || d.Lines[1].Missing != 1 || d.Lines[2].Granted() != 4 {
		t.Errorf("got %+v", d.Lines)
	}
	w.onHand(t, "A", 0)
	var short *stock.ShortError
	if _, err := s.Deduct(t.Context(), partial("nothing is left")); !errors.As(err, &short) || len(short.Lines) != 3 {
		t.Errorf("got %v", err)
	}
	if again := deduct(t, s, partial("o")); !again.Replayed || again.Deduction.Lines[2].Missing != 3 {
		t.Errorf("a retry when nothing is left: %+v", again)
	}
	w.receive(t, "A", "more", 3)
	hold := order("all of it", "A")
	hold.Lines[0].Quantity, hold.Hold = 3, time.Hour
	patiently(t, s, hold)
	w.due(t)
	if d := patiently(t, s, partial("what expired")).Deduction; d.Lines[2].Granted() != 2 {
		t.Errorf("got %+v", d.Lines)
	}
}

// TestOrderWithoutAPlaceGoesAnywhere, and nowhere when every location is empty.
func TestOrderWithoutAPlaceGoesAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 2)
	anywhere := func(id string, locations ...stock.Location) *stock.DeductRequest {
		r := order(id, "A")
		r.Lines[0].Item.Location = ""
		r.Lines[0].Sourcing = &stock.Sourcing{Locations: locations}
		return r
	}
	for i, locations := range [][]stock.Location{nil, {"nowhere", stock.DefaultLocation}} {
		out := deduct(t, s, anywhere(fmt.Sprint(i), locations...))
		if got := out.Deduction.Lines[0].Item; got != at("A") {
			t.Errorf("taken from %s", got)
		}
	}
	unblock := w.block(t, "A") // who asks the ledger now waits
	defer unblock()
	for i, locations := range [][]stock.Location{nil, {stock.DefaultLocation}} {
		var short *stock.ShortError
		if _, err := s.Deduct(t.Context(), anywhere(fmt.Sprint("late ", i), locations...)); !errors.As(err, &short) {
			t.Errorf("sold out: %v", err)
		}
	}
}
