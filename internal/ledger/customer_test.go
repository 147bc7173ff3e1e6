package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// limited asks for one unit for a customer who may have so many.
func limited(id, customer string, limit stock.Quantity, skus ...string) *stock.DeductRequest {
	r := order(id, skus...)
	r.Customer, r.CustomerLimit = customer, limit
	return r
}

// TestCustomerLimitAcrossProcesses: a hundred orders of one customer at once, through two processes, and a hundred of
// others beside them. He gets what he may have, the others get theirs.
func TestCustomerLimitAcrossProcesses(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	processes := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, processes[0], "A", 500)
	const limit, each = 3, 100
	var got, others atomic.Int64
	var asking sync.WaitGroup
	for i := range each {
		asking.Go(func() {
			_, err := processes[i%2].Deduct(t.Context(), limited(fmt.Sprint("ann ", i), "ann", limit, "A"))
			switch {
			case err == nil:
				got.Add(1)
			case !errors.Is(err, stock.ErrCustomerLimit):
				t.Error(err)
			}
		})
		asking.Go(func() {
			r := limited(fmt.Sprint("other ", i), fmt.Sprint("customer ", i%50), 2, "A")
			if i%3 == 0 {
				r = order(fmt.Sprint("nobody ", i), "A")
			}
			if _, err := processes[i%2].Deduct(t.Context(), r); err != nil {
				t.Error(err)
			}
			others.Add(1)
		})
	}
	asking.Wait()
	if got.Load() != limit || others.Load() != each {
		t.Errorf("the customer got %d, the others %d", got.Load(), others.Load())
	}
	mustHold(t, url)
}

// TestCustomerUnitsComeBackOnce: what is released, expires, is left by a partial commit or comes back may be had again,
// once; what an order without a limit takes counts too; and another client's customer is somebody else.
func TestCustomerUnitsComeBackOnce(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 50)
	full := func(when string, has stock.Quantity) {
		t.Helper()
		r := limited("too many "+when, "ann", has, "A")
		var over *stock.LimitError
		if _, err := l.Deduct(t.Context(), r); !errors.As(err, &over) || over.Lines[0].Has != has {
			t.Errorf("%s: %v, want %d", when, err, has)
		}
		r = limited("enough "+when, "ann", has+1, "A")
		d := deduct(t, l, r)
		for range 2 {
			if _, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("back " + when), ID: d.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := order("first", "A", "A", "A")
	first.Customer, first.Hold = "ann", stock.MaxHold
	held := deduct(t, l, first)
	full("held", 3)
	theirs := limited("theirs", "ann", 1, "A")
	theirs.Client = "another"
	deduct(t, l, theirs)
	_, err := l.Commit(t.Context(), &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: held.ID, Lines: []stock.LineQuantity{{No: 2, Quantity: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	full("committed in part", 1)
	second := order("second", "A")
	second.Customer, second.Hold = "ann", stock.MaxHold
	gone := deduct(t, l, second)
	full("second hold", 2)
	for range 2 {
		if _, err := l.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: gone.ID}); err != nil {
			t.Fatal(err)
		}
	}
	full("released", 1)
	third := limited("third", "ann", 2, "A")
	third.Hold = stock.MaxHold
	over := deduct(t, l, third)
	execute(t, url, "UPDATE deductions SET expires_at = now() WHERE id = $1", over.ID)
	if _, err := l.Expire(t.Context(), over.ID, stock.Fence{}); err != nil {
		t.Fatal(err)
	}
	full("expired", 1)
	deduct(t, l, limited("instead", "ann", 2, "A"))
	again := &stock.ExtendRequest{Client: "shop", ID: over.ID, Hold: stock.MaxHold, Reacquire: true}
	if _, err := l.Extend(t.Context(), again); !errors.Is(err, stock.ErrCustomerLimit) {
		t.Errorf("a hold taken anew beyond the limit it was made with: %v", err)
	}
	mustHold(t, url)
}

// TestCustomerLimitNamesEveryLine, and takes nothing of the others.
func TestCustomerLimitNamesEveryLine(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 50)
	stockUp(t, l, "B", 50)
	var over *stock.LimitError
	if _, err := l.Deduct(t.Context(), limited("o", "ann", 1, "A", "B", "A")); !errors.As(err, &over) {
		t.Fatal(err)
	}
	want := stock.LimitLine{Line: 2, Item: at("A"), Requested: 2, Limit: 1}
	if len(over.Lines) != 2 || over.Lines[0].Line != 0 || over.Lines[1] != want {
		t.Errorf("got %+v", over.Lines)
	}
	if a, b := levels(t, l, "A"), levels(t, l, "B"); a.OnHand != 50 || b.OnHand != 50 {
		t.Errorf("a refused order took: %s, %s", figures(a), figures(b))
	}
}

// TestOrdersOfACustomerTogether: what comes in one batch counts one after the other, and what is done to an order as one, which is
// tried on a copy first, counts once.
func TestOrdersOfACustomerTogether(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 50)
	has := func(when string, want stock.Quantity) {
		t.Helper()
		var over *stock.LimitError
		r := limited("another", "ann", 1, "A", "A")
		if _, err := l.Deduct(t.Context(), r); !errors.As(err, &over) || over.Lines[0].Has != want {
			t.Errorf("%s: %v, want %d", when, err, want)
		}
	}
	parts := make([]*stock.DeductRequest, 5)
	for i := range parts {
		parts[i] = limited(fmt.Sprint("part ", i), "ann", 3, "A")
		parts[i].OrderID, parts[i].Part, parts[i].Hold = "o", fmt.Sprint(i), stock.MaxHold
	}
	for i, done := range l.DeductAll(t.Context(), parts) {
		if i < 3 && done.Err != nil || i >= 3 && !errors.Is(done.Err, stock.ErrCustomerLimit) {
			t.Errorf("part %d: %v", i, done.Err)
		}
	}
	has("held", 3)
	for range 2 {
		if _, err := l.CommitOrder(t.Context(), ofOrder("o")); err != nil {
			t.Fatal(err)
		}
		has("committed", 3)
	}
	back := ofOrder("o")
	back.Key = "back"
	for range 2 {
		if _, err := l.ReturnOrder(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		has("returned", 0)
	}
	deduct(t, l, parts[3])
	deduct(t, l, parts[4])
	for range 2 {
		if _, err := l.ReleaseOrder(t.Context(), ofOrder("o")); err != nil {
			t.Fatal(err)
		}
		has("released", 0)
	}
	mustHold(t, url)
	mustCheck(t, l)
}
