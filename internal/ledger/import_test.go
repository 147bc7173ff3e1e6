package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

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

// TestImportKeepsTheOrderOfItsRows, also where a part of them has its items made while another's movements wait for room.
func TestImportKeepsTheOrderOfItsRows(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := start(t, ledger.Config{URL: url, Writers: 1, Patience: time.Minute})
	stockUp(t, l, "B", ledger.MaxWaiting)
	release := blockItem(t, url, "B")
	crowd := make([]*stock.DeductRequest, ledger.MaxWaiting)
	for n := range crowd {
		crowd[n] = order(fmt.Sprint("crowd ", n), "B")
	}
	go l.DeductAll(t.Context(), crowd)
	waitForLock(t, url)
	rows := counts(2*ledger.MaxImport/4 + 250)
	imported := make(chan []stock.Imported, 2)
	go func() {
		for range 2 {
			imported <- l.Import(t.Context(), "shop", rows)
		}
	}()
	// The first rows have what room there is, those after them wait for the crowd, and meanwhile the second part gets its items.
	eventually(t, "the items of the second part", func() bool {
		_, err := l.Item(t.Context(), at("of row 1199"))
		return err == nil
	})
	release()
	for again := range 2 {
		for n, d := range <-imported {
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
	const part = ledger.MaxImport / 4
	rows := counts(2*part + 250)
	fired := proxy.OnRequest(contains(fmt.Sprint("of row ", part+99-part%100)), fault.Disconnect)
	for n, d := range l.Import(t.Context(), "shop", rows) {
		if known := n < part; known && d.Err != nil || !known && !errors.Is(d.Err, stock.ErrUnknownOutcome) {
			t.Fatalf("row %d: %+v", n, d)
		}
	}
	happens(t, "the lost connection", fired)
	for n, d := range l.Import(t.Context(), "shop", rows) {
		if d.Err != nil || d.Replayed != (n < part) {
			t.Fatalf("again, row %d: %+v", n, d)
		}
	}
	mustHold(t, database)
}
