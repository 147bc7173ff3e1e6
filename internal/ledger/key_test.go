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

// TestVoidMeetsTheOriginal lets a key be given up at the moment its request arrives, a thousand times, in one process
// and in two. One of them wins, both learn which, and no duplicate changes it later.
func TestVoidMeetsTheOriginal(t *testing.T) {
	t.Parallel()
	const races, atOnce = 1000, 20
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, ledgers[0], "A", races)
	var done, voided atomic.Int64
	var racing sync.WaitGroup
	for lane := range atOnce {
		racing.Go(func() {
			for i := lane; i < races; i += atOnce {
				raceVoid(t, ledgers[0], ledgers[i/atOnce%2], fmt.Sprint("race ", i), &done, &voided)
			}
		})
	}
	racing.Wait()
	if done.Load()+voided.Load() != races || done.Load() == 0 || voided.Load() == 0 {
		t.Errorf("%d were done, %d voided, of %d: both must happen", done.Load(), voided.Load(), races)
	}
	if got := levels(t, ledgers[0], "A"); got.OnHand != stock.Quantity(races-done.Load()) {
		t.Errorf("%d were done: %s", done.Load(), figures(got))
	}
	mustHold(t, url)
}

func raceVoid(t *testing.T, original, other *ledger.Ledger, name string, done, voided *atomic.Int64) {
	r := order(name, "A")
	var deductErr, voidErr error
	var found *stock.Operation
	var both sync.WaitGroup
	both.Go(func() { deductErr = second(original.Deduct(t.Context(), r)) })
	both.Go(func() { found, voidErr = other.Void(t.Context(), r.Keyed) })
	both.Wait()
	switch {
	case voidErr != nil:
		t.Errorf("%s: void: %v", name, voidErr)
		return
	case deductErr == nil && found.Kind == stock.DeductOperation && found.Replayed && found.Outcome.Deduction.OrderID == name:
		done.Add(1)
	case errors.Is(deductErr, stock.ErrKeyVoided) && found.Kind == stock.VoidOperation && !found.Replayed:
		voided.Add(1)
	default:
		t.Errorf("%s: deduct: %v, void: %+v", name, deductErr, found)
	}
	late := second(other.Deduct(t.Context(), r))
	if (late == nil) != (deductErr == nil) || late != nil && !errors.Is(late, stock.ErrKeyVoided) {
		t.Errorf("%s: %v, its late duplicate: %v", name, deductErr, late)
	}
}

// TestAVoidKeyStaysVoid whatever is asked under it, and voiding is done once.
func TestAVoidKeyStaysVoid(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 5)
	d := deduct(t, l, order("o", "A"))
	key := keyed("given up")
	if _, err := l.Operation(t.Context(), key); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	first, err := l.Void(t.Context(), key)
	if err != nil || first.Replayed || first.Kind != stock.VoidOperation || time.Since(first.At).Abs() > time.Minute {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := l.Void(t.Context(), key)
	if err != nil || !again.Replayed || again.Kind != stock.VoidOperation || !again.At.Equal(first.At) {
		t.Errorf("again: %+v, %v", again, err)
	}
	late := order("late", "A")
	late.Keyed = key
	hold := order("hold", "A")
	hold.Hold = time.Hour
	held := deduct(t, l, hold)
	for what, err := range map[string]error{
		"deduct": second(l.Deduct(t.Context(), late)),
		"recall": second(l.Recall(t.Context(), late)),
		"return": second(l.Return(t.Context(), &stock.ReturnRequest{Keyed: key, ID: d.ID})),
		"adjust": second(l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: key, Item: at("A"), Kind: stock.Adjust, Delta: 1})),
		"commit": second(l.Commit(t.Context(), &stock.CommitRequest{
			Keyed: key, ID: held.ID, Lines: []stock.LineQuantity{{No: 1, Quantity: 1}}, KeepRest: true,
		})),
	} {
		if !errors.Is(err, stock.ErrKeyVoided) {
			t.Errorf("%s: %v", what, err)
		}
	}
	theirs := order("late", "A")
	theirs.Keyed = stock.Keyed{Client: "other", Key: key.Key}
	if _, err := l.Deduct(t.Context(), theirs); err != nil {
		t.Errorf("another client's key of the same name: %v", err)
	}
	if got := levels(t, l, "A"); got.OnHand != 3 || got.Held != 1 {
		t.Errorf("got %s", figures(got))
	}
}

// TestAKeyTellsWhatItDid, void or not, as it is now.
func TestAKeyTellsWhatItDid(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 5)
	hold := order("o", "A")
	hold.Hold = time.Hour
	hold.Lines[0].Quantity = 2
	d := deduct(t, l, hold)
	commit := stock.CommitRequest{Keyed: keyed("c"), ID: d.ID, Lines: []stock.LineQuantity{{No: 1, Quantity: 1}}, KeepRest: true}
	for _, err := range []error{
		second(l.Commit(t.Context(), &commit)),
		second(l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("r"), ID: d.ID})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for key, kind := range map[string]stock.OperationKind{
		"o": stock.DeductOperation, "c": stock.CommitOperation, "r": stock.ReturnOperation, "stock A": stock.AdjustOperation,
	} {
		looked, err := l.Operation(t.Context(), keyed(key))
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		given, err := l.Void(t.Context(), keyed(key))
		if err != nil || !given.Replayed {
			t.Errorf("%s: void: %+v, %v", key, given, err)
			continue
		}
		for _, op := range []*stock.Operation{looked, given} {
			if op.Kind != kind || op.Key != key || op.At.IsZero() {
				t.Errorf("%s: %+v", key, op)
			}
			if kind == stock.AdjustOperation {
				if op.Adjustment.Movement.DeltaOnHand != 5 || op.Adjustment.Levels.OnHand != 5 {
					t.Errorf("%s: %+v", key, op.Adjustment)
				}
			} else if op.Outcome.Deduction.ID != d.ID || op.Outcome.Deduction.Lines[0].Returned != 1 {
				t.Errorf("%s: %+v", key, op.Outcome)
			}
		}
		if _, err := l.Operation(t.Context(), stock.Keyed{Client: "other", Key: key}); !errors.Is(err, stock.ErrNotFound) {
			t.Errorf("another client's %s: %v", key, err)
		}
	}
}
