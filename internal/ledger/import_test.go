package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// counts are rows that each count A one up from what the row before left, and are refused in any other order. Every hundredth is about an
// item of its own, which it creates.
func counts(rows int) []stock.ImportRow {
	all := make([]stock.ImportRow, rows)
	for n := range all {
		r := &stock.AdjustRequest{Keyed: keyed(fmt.Sprint("row ", n)), Item: at("A"), Kind: stock.Count}
		before := stock.Quantity(n - n/100)
		if n%100 == 99 {
			r.Item, before = at(fmt.Sprint("of row ", n)), 0
		}
		units := before + 1
		r.SetTo, r.ExpectedOnHand = &units, &before
		all[n] = stock.ImportRow{Item: r.Item, Create: true, Adjust: r}
	}
	return all
}

// TestImportKeepsTheOrderOfItsRows, also where a part of them has its items made while another's movements are written.
func TestImportKeepsTheOrderOfItsRows(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	rows := counts(ledger.MaxImport/2 + 250)
	for again := range 2 {
		for n, d := range l.Import(t.Context(), "shop", rows) {
			if d.Err != nil || d.Moved == (again == 1) || d.Replayed != (again == 1) || again == 0 && d.Levels.OnHand != *rows[n].Adjust.SetTo {
				t.Fatalf("time %d, row %d: %+v", again, n, d)
			}
		}
	}
	if got := levels(t, l, "A"); got.OnHand != *rows[len(rows)-1].Adjust.SetTo {
		t.Errorf("got %s", figures(got))
	}
	mustHold(t, url)
}

// TestImportWhoseItemsCannotBeMade: every row has an answer, those before the fault that of what they did, and the rest may be sent again.
func TestImportWhoseItemsCannotBeMade(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	proxy, url := behind(t, database)
	l := openAt(t, url)
	rows := counts(ledger.MaxImport/2 + 250)
	const half = ledger.MaxImport / 2
	fired := proxy.OnRequest(contains(fmt.Sprint("of row ", half+99-half%100)), fault.Disconnect)
	for n, d := range l.Import(t.Context(), "shop", rows) {
		if known := n < half; known && d.Err != nil || !known && !errors.Is(d.Err, stock.ErrUnknownOutcome) {
			t.Fatalf("row %d: %+v", n, d)
		}
	}
	happens(t, "the lost connection", fired)
	for n, d := range l.Import(t.Context(), "shop", rows) {
		if d.Err != nil || d.Replayed != (n < half) {
			t.Fatalf("again, row %d: %+v", n, d)
		}
	}
	mustHold(t, database)
}
