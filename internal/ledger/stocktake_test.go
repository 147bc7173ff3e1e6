package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func openCount(t *testing.T, l *ledger.Ledger, key, sku string) (*stock.Stocktake, error) {
	t.Helper()
	return l.OpenStocktake(t.Context(), &stock.OpenStocktakeRequest{Keyed: keyed(key), Item: at(sku), Lease: time.Hour})
}

func complete(t *testing.T, l *ledger.Ledger, s *stock.Stocktake, counted stock.Quantity) (*stock.Stocktake, error) {
	t.Helper()
	return l.CompleteStocktake(t.Context(), &stock.CompleteStocktakeRequest{
		Client: "shop", ID: s.ID, Item: s.Item, Counted: counted,
	})
}

func TestCountIsWrittenAndWhatMovedMeanwhileStays(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 100)
	s, err := openCount(t, l, "c-1", "A")
	if err != nil || s.State != stock.StocktakeOpen || s.OnHand != 100 || s.Version != 1 || s.Counted != nil || s.Replayed {
		t.Fatalf("%+v, %v", s, err)
	}
	again, err := openCount(t, l, "c-1", "A")
	if err != nil || again.ID != s.ID || !again.Replayed {
		t.Errorf("the same key again: %+v, %v", again, err)
	}
	var open *stock.StocktakeError
	if _, err := openCount(t, l, "c-2", "A"); !errors.As(err, &open) || !errors.Is(err, stock.ErrStocktakeOpen) || open.Stocktake.ID != s.ID {
		t.Errorf("a second count: %v", err)
	}
	if _, err := openCount(t, l, "c-1", "B"); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("the key for another item: %v", err)
	}
	if _, err := openCount(t, l, "c-3", "B"); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("an item that does not exist: %v", err)
	}
	deduct(t, l, order("meanwhile", "A"))
	done, err := complete(t, l, s, 97)
	if err != nil {
		t.Fatal(err)
	}
	want := &stock.Counted{Quantity: 97, Movements: 1, Moved: stock.Moved{Deducted: 1}, Movement: stock.Movement{
		Version: 3, Kind: stock.Count, DeltaOnHand: -3, OnHand: 96, Reason: "stocktake " + s.ID.String(), Actor: "shop",
		At: done.Counted.Movement.At,
	}}
	if diff := cmp.Diff(want, done.Counted); diff != "" || done.State != stock.StocktakeCompleted || done.Replayed {
		t.Errorf("state %s, replayed %v (-want +got):\n%s", done.State, done.Replayed, diff)
	}
	if again, err := complete(t, l, s, 97); err != nil || !again.Replayed || again.Counted.Quantity != 97 {
		t.Errorf("the same figure again: %+v, %v", again, err)
	}
	if _, err := complete(t, l, s, 98); !errors.Is(err, stock.ErrStocktakeOver) {
		t.Errorf("another figure: %v", err)
	}
	if l := levels(t, l, "A"); l.OnHand != 96 || l.Version != 3 {
		t.Error(figures(l))
	}
	if next, err := openCount(t, l, "c-4", "A"); err != nil || next.Fence.Token <= s.Fence.Token {
		t.Errorf("the next count: %+v, %v", next, err)
	}
}

// An abandoned count ends with its lease: the item may be counted again, and the old count can write nothing, not even
// before the new one has written.
func TestAbandonedCountWritesNothing(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 10)
	old, err := openCount(t, l, "old", "A")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, "UPDATE fences SET ends_at = clock_timestamp()")
	if _, err := complete(t, l, old, 9); !errors.Is(err, stock.ErrStocktakeOver) {
		t.Errorf("after its lease: %v", err)
	}
	newer, err := openCount(t, l, "new", "A")
	if err != nil {
		t.Fatal(err)
	}
	var over *stock.StocktakeError
	if _, err := complete(t, l, old, 9); !errors.As(err, &over) || over.Stocktake.State != stock.StocktakeOver {
		t.Errorf("after another was opened: %v", err)
	}
	if l := levels(t, l, "A"); l.OnHand != 10 {
		t.Error(figures(l))
	}
	if _, err := complete(t, l, newer, 8); err != nil {
		t.Error(err)
	}
	if l := levels(t, l, "A"); l.OnHand != 8 {
		t.Error(figures(l))
	}
}

func TestCountStaysInRange(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 10)
	r := order("held", "A")
	r.Hold = time.Hour
	deduct(t, l, r)
	s, err := openCount(t, l, "c", "A")
	if err != nil {
		t.Fatal(err)
	}
	var short *stock.ShortError
	if _, err := complete(t, l, s, 0); !errors.As(err, &short) {
		t.Errorf("less than is held: %v", err)
	}
	if _, err := complete(t, l, s, stock.MaxOnHand+1); !errors.Is(err, stock.ErrInvalidField) {
		t.Errorf("more than an item can have: %v", err)
	}
	if _, err := l.CompleteStocktake(t.Context(), &stock.CompleteStocktakeRequest{Client: "other", ID: s.ID, Item: s.Item}); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("another client's: %v", err)
	}
	if done, err := complete(t, l, s, 1); err != nil || done.Counted.Movement.OnHand != 1 {
		t.Errorf("just what is held: %+v, %v", done, err)
	}
}
