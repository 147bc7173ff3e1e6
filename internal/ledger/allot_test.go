package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// stockUpAt puts units of a SKU at a location.
func stockUpAt(t *testing.T, l *ledger.Ledger, sku string, location stock.Location, units stock.Quantity) {
	t.Helper()
	item := stock.Item{SKU: stock.SKU(sku), Location: location}
	if _, err := l.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: item}); err != nil {
		t.Fatal(err)
	}
	_, err := l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed("stock " + item.String()), Item: item, Kind: stock.Receive, Delta: units})
	if err != nil {
		t.Fatal(err)
	}
}

// shares tells the lines of a deduction in short.
func shares(d *stock.Deduction) []string {
	var all []string
	for _, l := range d.Lines {
		all = append(all, fmt.Sprintf("%d of %d: %s %d-%d, held %d, committed %d, returned %d",
			l.No, l.RequestLine, l.Item, l.Quantity, l.Missing, l.Held, l.Committed, l.Returned))
	}
	return all
}

// TestPartialGrantIsWhatThereIs: lines of one SKU share it, a retry is told the same when there is more, and nothing at
// all is no success.
func TestPartialGrantIsWhatThereIs(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 5)
	stockUp(t, l, "B", 0)
	r := order("o", "A", "B", "A")
	r.Lines[0].Quantity, r.Lines[2].Quantity, r.AllowPartial = 3, 4, true
	first := deduct(t, l, r)
	want := []string{
		"1 of 1: A@default 3-0, held 0, committed 3, returned 0",
		"2 of 2: B@default 1-1, held 0, committed 0, returned 0",
		"3 of 3: A@default 4-2, held 0, committed 2, returned 0",
	}
	if diff := cmp.Diff(want, shares(first)); diff != "" {
		t.Error(diff)
	}
	if _, err := l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed("more"), Item: at("A"), Kind: stock.Receive, Delta: 9}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, shares(deduct(t, l, r))); diff != "" {
		t.Errorf("a retry: %s", diff)
	}
	nothing := order("nothing", "B", "B")
	nothing.AllowPartial = true
	var short *stock.ShortError
	if _, err := l.Deduct(t.Context(), nothing); !errors.As(err, &short) || len(short.Lines) != 2 {
		t.Errorf("nothing at all: %v", err)
	}
	mustHold(t, url)
}

// TestSplitLineIsCommittedAndReturnedByItsName: a line of 10 that two locations share is one line to whoever names it by
// his own id, and two to whoever names them by number.
func TestSplitLineIsCommittedAndReturnedByItsName(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUpAt(t, l, "A", "east", 4)
	stockUpAt(t, l, "A", "west", 7)
	stockUp(t, l, "B", 1)
	r := order("o", "A", "B")
	r.Hold = stock.MaxHold
	r.Lines[0] = stock.WantedLine{
		Item: stock.Item{SKU: "A"}, Quantity: 10, LineID: "mine",
		Sourcing: &stock.Sourcing{Locations: []stock.Location{"nowhere", "east", "west"}, Split: true},
	}
	d := deduct(t, l, r)
	want := []string{
		"1 of 1: A@east 4-0, held 4, committed 0, returned 0",
		"2 of 1: A@west 6-0, held 6, committed 0, returned 0",
		"3 of 2: B@default 1-0, held 1, committed 0, returned 0",
	}
	if diff := cmp.Diff(want, shares(d)); diff != "" {
		t.Error(diff)
	}
	if out, err := l.Deduction(t.Context(), "shop", d.ID); err != nil || cmp.Diff(want, shares(&out.Deduction)) != "" {
		t.Errorf("read again: %v %v", shares(&out.Deduction), err)
	}
	commit := func(key string, units stock.Quantity) *stock.CommitRequest {
		return &stock.CommitRequest{Keyed: keyed(key), ID: d.ID, Lines: []stock.LineQuantity{{LineID: "mine", Quantity: units}}, KeepRest: true}
	}
	if _, err := l.Commit(t.Context(), commit("too many", 11)); !errors.Is(err, stock.ErrInvalidField) {
		t.Errorf("11 of 10: %v", err)
	}
	for _, units := range []stock.Quantity{3, 5} {
		if _, err := l.Commit(t.Context(), commit(fmt.Sprint("commit ", units), units)); err != nil {
			t.Fatal(err)
		}
	}
	back := func(key string, line stock.LineQuantity) error {
		_, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed(key), ID: d.ID, Lines: []stock.LineQuantity{line}})
		return err
	}
	var excess *stock.ReturnError
	if err := back("9", stock.LineQuantity{LineID: "mine", Quantity: 9}); !errors.As(err, &excess) || excess.Lines[0].Possible != 8 {
		t.Errorf("9 of 8 back: %v", err)
	}
	if err := errors.Join(
		back("west", stock.LineQuantity{No: 2, Quantity: 1}), back("mine", stock.LineQuantity{LineID: "mine", Quantity: 6}),
	); err != nil {
		t.Fatal(err)
	}
	out, err := l.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: d.ID})
	if err != nil {
		t.Fatal(err)
	}
	want = []string{
		"1 of 1: A@east 4-0, held 0, committed 4, returned 4",
		"2 of 1: A@west 6-0, held 0, committed 4, returned 3",
		"3 of 2: B@default 1-0, held 0, committed 0, returned 0",
	}
	if diff := cmp.Diff(want, shares(&out.Deduction)); diff != "" {
		t.Error(diff)
	}
	mustHold(t, url)
}

// TestSourcingFindsLocations: those that have some first, then by name; within what the caller may use; at most sixteen.
func TestSourcingFindsLocations(t *testing.T) {
	t.Parallel()
	l := open(t)
	for i := range 20 {
		stockUpAt(t, l, "A", stock.Location(fmt.Sprintf("shop-%02d", i)), 1)
	}
	deduct(t, l, &stock.DeductRequest{Keyed: keyed("o"), OrderID: "o", Lines: []stock.WantedLine{{
		Item: stock.Item{SKU: "A", Location: "shop-03"}, Quantity: 1,
	}}})
	source := func(within ...stock.Location) []stock.Location {
		r := order("any", "A")
		r.Lines[0].Sourcing = &stock.Sourcing{Within: within}
		if err := l.Source(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return r.Lines[0].Sourcing.Found
	}
	if all := source(); len(all) != stock.MaxLocations || all[0] != "shop-00" || all[3] != "shop-04" {
		t.Errorf("got %v", all)
	}
	if diff := cmp.Diff([]stock.Location{"shop-05", "shop-03"}, source("shop-03", "shop-05", "shop-99")); diff != "" {
		t.Error(diff)
	}
}
