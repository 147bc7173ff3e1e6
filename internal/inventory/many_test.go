package inventory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestManyRequestsTogether: the gate refuses some, the ledger others; each has its own outcome, in order, and none
// leaves a ticket behind.
func TestManyRequestsTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 300)
	w.stockUp(t, "B", 1)
	deduct(t, s, order("last B", "B"))
	var all []*stock.DeductRequest
	var want []error
	add := func(r *stock.DeductRequest, err error) { all, want = append(all, r), append(want, err) }
	add(order("last B", "B"), nil) // a replay, of what the gate calls sold out
	for i := range 300 {
		add(order(fmt.Sprint("a ", i), "A"), nil)
		add(order(fmt.Sprint("b ", i), "B", "A"), stock.ErrInsufficientStock)
	}
	add(order("a 7", "A"), nil)
	add(order("none", "nothing", "A"), stock.ErrUnknownItem)
	add(order("too late", "A"), stock.ErrInsufficientStock)
	done := s.DeductAll(t.Context(), all)
	for i := range done {
		if !errors.Is(done[i].Err, want[i]) || (done[i].Outcome == nil) == (want[i] == nil) {
			t.Fatalf("%d: %+v, want error %v", i, done[i], want[i])
		}
		if out := done[i].Outcome; out != nil && out.Replayed != (i == 0 || i == 601) {
			t.Errorf("%d: replayed %v", i, out.Replayed)
		}
	}
	w.onHand(t, "A", 0)
	w.onHand(t, "B", 0)
	eventually(t, "no ticket is left", 30*time.Second, func() bool { return len(w.tickets(t, "A")) == 0 && len(w.tickets(t, "B")) == 0 })
}

// TestAReplayIsInNobodysWay: a batch is sent again with one more order, for which the units are there.
func TestAReplayIsInNobodysWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 6)
	all := []*stock.DeductRequest{order("1", "A"), order("2", "A"), order("3", "A")}
	s.DeductAll(t.Context(), all)
	all = append(all, order("4", "A", "A", "A"))
	for i, done := range s.DeductAll(t.Context(), all) {
		if done.Err != nil || done.Outcome.Replayed != (i < 3) {
			t.Errorf("%d: %+v", i, done)
		}
	}
	w.onHand(t, "A", 0)
}

// TestTakingAnewMakesRoom: what is in the way of an expired hold that is taken anew is another one, which nobody has
// released yet.
func TestTakingAnewMakesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 1)
	hold := func(name string) stock.DeductionID {
		r := order(name, "A")
		r.Hold = time.Hour
		return deduct(t, s, r).Deduction.ID
	}
	end := func(id stock.DeductionID) {
		if _, err := w.connect(t).Exec(t.Context(), "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", id); err != nil {
			t.Fatal(err)
		}
	}
	mine := hold("mine")
	end(mine)
	if _, err := s.Sweep(t.Context(), stock.Fence{}); err != nil {
		t.Fatal(err)
	}
	end(hold("another's"))
	out, err := s.Extend(t.Context(), &stock.ExtendRequest{Client: "shop", ID: mine, Hold: time.Hour, Reacquire: true})
	if err != nil || out.Deduction.State != stock.Held {
		t.Errorf("got %+v, %v", out, err)
	}
	w.onHand(t, "A", 1)
}

// TestARehearsalLeavesTheGateAlone, whether it would be done or refused.
func TestARehearsalLeavesTheGateAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 1)
	if out, err := s.RehearseDeduct(t.Context(), order("o", "A")); err != nil || out.Deduction.State != stock.Committed || out.Levels[0].OnHand != 0 {
		t.Errorf("got %+v, %v", out, err)
	}
	if _, err := s.RehearseDeduct(t.Context(), order("o", "A", "A")); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("got %v", err)
	}
	if f, err := w.eyes.Peek(t.Context(), at("A")); err != nil || f.Known {
		t.Errorf("the gate has heard of it: %+v, %v", f, err)
	}
	deduct(t, s, order("o", "A")) // the key is free
	w.onHand(t, "A", 0)
}
