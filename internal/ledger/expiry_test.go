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

// TestCommitMeetsExpiry lets a thousand holds end at the moment they are committed, half of them with somebody who
// expires what is due. Exactly one wins each time.
func TestCommitMeetsExpiry(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{true, false} {
		t.Run(fmt.Sprintf("swept=%v", swept), func(t *testing.T) {
			t.Parallel()
			const races, rounds = 500, 10
			url := sandbox.Database(t)
			ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
			stockUp(t, ledgers[0], "A", races)
			holds := holdMany(t, ledgers[0], races)
			var taken, over atomic.Int64
			for round := range rounds {
				list := holds[round*races/rounds : (round+1)*races/rounds]
				end := time.Now().Add(500 * time.Millisecond)
				ids := make([]stock.DeductionID, len(list))
				for i, d := range list {
					ids[i] = d.ID
				}
				execute(t, url, "UPDATE deductions SET expires_at = $2 WHERE id = ANY($1)", ids, end)
				var racing sync.WaitGroup
				for i, d := range list {
					racing.Go(func() { // some set out long before, so that some arrive in time on a slow machine, too
						<-time.After(time.Until(end.Add(time.Duration(10-4*i) * time.Millisecond)))
						race(t, ledgers, d.ID, swept, &taken, &over)
					})
				}
				racing.Wait()
			}
			if taken.Load()+over.Load() != races || taken.Load() == 0 || over.Load() == 0 {
				t.Errorf("%d were committed, %d had expired, of %d: both must happen", taken.Load(), over.Load(), races)
			}
			endAll(t, ledgers[0])
			if got := levels(t, ledgers[0], "A"); got.OnHand != stock.Quantity(races-taken.Load()) || got.Held != 0 {
				t.Errorf("%d were committed: %s", taken.Load(), figures(got))
			}
			mustHold(t, url)
		})
	}
}

// holdMany makes holds of one unit of A.
func holdMany(t *testing.T, l *ledger.Ledger, n int) []*stock.Deduction {
	t.Helper()
	holds := make([]*stock.Deduction, n)
	var making sync.WaitGroup
	for i := range holds {
		making.Go(func() {
			r := order(fmt.Sprint("h-", i), "A")
			r.Hold = time.Hour
			out, err := l.Deduct(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			holds[i] = &out.Deduction
		})
	}
	making.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return holds
}

// race commits a hold, while another process perhaps expires it, and checks that what it was told is so.
func race(t *testing.T, ledgers []*ledger.Ledger, id stock.DeductionID, swept bool, taken, over *atomic.Int64) {
	var sweeping sync.WaitGroup
	if swept {
		sweeping.Go(func() {
			if _, err := ledgers[1].Expire(t.Context(), id, stock.Fence{}); err != nil {
				t.Error(err)
			}
		})
	}
	_, err := ledgers[0].Commit(t.Context(), &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: id})
	sweeping.Wait()
	want := stock.Committed
	switch {
	case err == nil:
		taken.Add(1)
	case errors.Is(err, stock.ErrHoldExpired):
		over.Add(1)
		want = stock.Expired
	default:
		t.Error(err)
		return
	}
	out, err := ledgers[1].Deduction(t.Context(), "shop", id)
	if err != nil || out.Deduction.State != want {
		t.Errorf("told %s, it is %+v, %v", want, out, err)
	}
}

// endAll expires what is due, as a sweeper does.
func endAll(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	due, err := l.Due(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range due {
		if _, err := l.Expire(t.Context(), id, stock.Fence{}); err != nil {
			t.Fatal(err)
		}
	}
}

// expired makes a hold of one unit of A whose time is over; swept or not.
func expired(t *testing.T, l *ledger.Ledger, url, name string, swept bool) *stock.Deduction {
	t.Helper()
	r := order(name, "A")
	r.Hold = time.Hour
	d := deduct(t, l, r)
	execute(t, url, "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", d.ID)
	if swept {
		endAll(t, l)
	}
	return d
}

// TestTakenAnewOrNotAtAll: an expired hold lives again only if its units and its order are free.
func TestTakenAnewOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{true, false} {
		t.Run(fmt.Sprintf("swept=%v", swept), func(t *testing.T) {
			t.Parallel()
			url := sandbox.Database(t)
			l := openAt(t, url)
			stockUp(t, l, "A", 1)
			d := expired(t, l, url, "mine", swept)
			extend := func(reacquire bool) error {
				return second(l.Extend(t.Context(), &stock.ExtendRequest{Client: "shop", ID: d.ID, Hold: time.Hour, Reacquire: reacquire}))
			}
			if err := extend(false); !errors.Is(err, stock.ErrHoldExpired) {
				t.Errorf("extended after its time: %v", err)
			}
			if err := extend(true); err != nil {
				t.Fatalf("taken anew: %v", err)
			}
			if got := levels(t, l, "A"); got.Held != 1 {
				t.Errorf("got %s", figures(got))
			}
			execute(t, url, "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", d.ID)
			endAll(t, l)
			other := deduct(t, l, order("other", "A"))
			var short *stock.ShortError
			if err := extend(true); !errors.As(err, &short) || short.Lines[0].Available != 0 {
				t.Errorf("the units are gone: %v", err)
			}
			if _, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("back"), ID: other.ID}); err != nil {
				t.Fatal(err)
			}
			again := order("mine", "A")
			again.Key = "another key"
			live := deduct(t, l, again)
			var taken *stock.OrderError
			if err := extend(true); !errors.As(err, &taken) || taken.ID != live.ID {
				t.Errorf("the order was deducted otherwise: %v", err)
			}
			mustHold(t, url)
		})
	}
}

// TestTakingAnewHasOneWinner: an expired hold and a new order want the last unit at once, from two processes.
func TestTakingAnewHasOneWinner(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, ledgers[0], "A", 1)
	for round := range 15 {
		d := expired(t, ledgers[0], url, fmt.Sprint("hold ", round), true)
		var anew, fresh error
		var both sync.WaitGroup
		both.Go(func() {
			anew = second(ledgers[0].Extend(t.Context(), &stock.ExtendRequest{Client: "shop", ID: d.ID, Hold: time.Hour, Reacquire: true}))
		})
		other := order(fmt.Sprint("order ", round), "A")
		other.Hold = time.Hour
		var made *stock.Outcome
		both.Go(func() { made, fresh = ledgers[1].Deduct(t.Context(), other) })
		both.Wait()
		winner := d.ID
		switch {
		case anew == nil && errors.Is(fresh, stock.ErrInsufficientStock):
		case fresh == nil && errors.Is(anew, stock.ErrInsufficientStock):
			winner = made.Deduction.ID
		default:
			t.Fatalf("round %d: taken anew: %v; new order: %v", round, anew, fresh)
		}
		if _, err := ledgers[0].Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: winner}); err != nil {
			t.Fatal(err)
		}
	}
	mustHold(t, url)
}

// TestAnExpiredHoldIsNotInTheWay of a new deduction of its order, swept or not.
func TestAnExpiredHoldIsNotInTheWay(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 2)
	old := expired(t, l, url, "o", false)
	again := order("o", "A")
	again.Key = "another key"
	if d := deduct(t, l, again); d.ID == old.ID {
		t.Error("the expired hold was answered")
	}
	if got := levels(t, l, "A"); got.OnHand != 1 || got.Held != 0 {
		t.Errorf("got %s", figures(got))
	}
	mustHold(t, url)
}

// TestOneOrderOneBatch: an expired hold that is taken anew and a new deduction of its order in one batch. It took the
// whole batch down once.
func TestOneOrderOneBatch(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := start(t, ledger.Config{URL: url, Writers: 1})
	stockUp(t, l, "A", 10)
	d := expired(t, l, url, "o", true)
	unblock := blockItem(t, url, "A")
	results := make(chan error, 2)
	first := make(chan error, 1)
	go func() { first <- second(l.Deduct(t.Context(), order("keeps the writer busy", "A"))) }()
	waitForLock(t, url)
	go func() {
		results <- second(l.Extend(t.Context(), &stock.ExtendRequest{Client: "shop", ID: d.ID, Hold: time.Hour, Reacquire: true}))
	}()
	eventually(t, "one waits", func() bool { return l.Waiting() == 1 })
	go func() {
		again := order("o", "A")
		again.Key = "another key"
		results <- second(l.Deduct(t.Context(), again))
	}()
	eventually(t, "two wait", func() bool { return l.Waiting() == 2 })
	unblock()
	if err := <-first; err != nil {
		t.Error(err)
	}
	won, lost := 0, 0
	for range 2 {
		switch err := <-results; {
		case err == nil:
			won++
		case errors.Is(err, stock.ErrOrderAlreadyDeducted):
			lost++
		default:
			t.Error(err)
		}
	}
	if won != 1 || lost != 1 {
		t.Errorf("%d won, %d lost", won, lost)
	}
	mustHold(t, url)
}

// TestReturnsNeverExceed what was committed, however many ask at once and from where.
func TestReturnsNeverExceed(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	stockUp(t, ledgers[0], "A", 20)
	r := order("o", "A")
	r.Lines[0].Quantity = 10
	d := deduct(t, ledgers[0], r)
	var back, refused atomic.Int64
	var asking sync.WaitGroup
	for i := range 40 {
		asking.Go(func() {
			_, err := ledgers[i%2].Return(t.Context(), &stock.ReturnRequest{
				Keyed: keyed(fmt.Sprint("back ", i)), ID: d.ID, Lines: []stock.LineQuantity{{No: 1, Quantity: 1}},
			})
			switch {
			case err == nil:
				back.Add(1)
			case errors.Is(err, stock.ErrReturnExceeds):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if back.Load() != 10 || refused.Load() != 30 {
		t.Errorf("%d came back, %d were refused", back.Load(), refused.Load())
	}
	if got := levels(t, ledgers[0], "A"); got.OnHand != 20 {
		t.Errorf("got %s", figures(got))
	}
	mustHold(t, url)
}
