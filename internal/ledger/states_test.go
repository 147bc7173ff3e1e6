package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Every state that a deduction can be in meets every action.
//
// A deduction has two lines, 3 units of A and 2 of B. What is expected reads
//
//	committed: A commit -3 -3, B …   done: the state after it, and the movements it makes (item, kind, Δon_hand, Δheld)
//	= committed                      nothing to do: the state that it finds
//	! expired                        refused
//
// States: due is a hold whose time is over and that was not swept; part … are those of which one unit of A was
// committed before, or, for committed ones, came back.
var transitions = map[string]map[string]string{
	"held": {
		"commit":           "committed: A commit -3 -3, B commit -2 -2",
		"commit some":      "committed: A commit -1 -1, A release 0 -2, B release 0 -2",
		"commit some keep": "held: A commit -1 -1",
		"release":          "released: A release 0 -3, B release 0 -2",
		"extend":           "held: ",
		"reacquire":        "held: ",
		"return":           "! state",
		"return some":      "! state",
		"expire":           "= held",
	},
	"due": {
		"commit":           "! expired",
		"commit some":      "! expired",
		"commit some keep": "! expired",
		"release":          "expired: A expire 0 -3, B expire 0 -2",
		"extend":           "! expired",
		"reacquire":        "held: A expire 0 -3, A hold 0 3, B expire 0 -2, B hold 0 2",
		"return":           "! state",
		"return some":      "! state",
		"expire":           "expired: A expire 0 -3, B expire 0 -2",
	},
	"expired": {
		"commit":           "! expired",
		"commit some":      "! expired",
		"commit some keep": "! expired",
		"release":          "= expired",
		"extend":           "! expired",
		"reacquire":        "held: A hold 0 3, B hold 0 2",
		"return":           "! state",
		"return some":      "! state",
		"expire":           "= expired",
	},
	"released": {
		"commit":           "! state",
		"commit some":      "! state",
		"commit some keep": "! state",
		"release":          "= released",
		"extend":           "! state",
		"reacquire":        "! state",
		"return":           "! state",
		"return some":      "! state",
		"expire":           "= released",
	},
	"part held": {
		"commit":           "committed: A commit -2 -2, B commit -2 -2",
		"commit some":      "committed: A commit -1 -1, A release 0 -1, B release 0 -2",
		"commit some keep": "held: A commit -1 -1",
		"release":          "committed: A release 0 -2, B release 0 -2",
		"extend":           "held: ",
		"reacquire":        "held: ",
		"return":           "held: A return 1 0",
		"return some":      "held: A return 1 0",
		"expire":           "= held",
	},
	"part due": {
		"commit":           "! state",
		"commit some":      "= committed",
		"commit some keep": "! state",
		"release":          "committed: A expire 0 -2, B expire 0 -2",
		"extend":           "! state",
		"reacquire":        "! state",
		"return":           "returned: A return 1 0",
		"return some":      "returned: A return 1 0",
		"expire":           "committed: A expire 0 -2, B expire 0 -2",
	},
	"part expired": {
		"commit":           "! state",
		"commit some":      "= committed",
		"commit some keep": "! state",
		"release":          "= committed",
		"extend":           "! state",
		"reacquire":        "! state",
		"return":           "returned: A return 1 0",
		"return some":      "returned: A return 1 0",
		"expire":           "= committed",
	},
	"part held, back": {
		"commit":           "committed: A commit -2 -2, B commit -2 -2",
		"commit some":      "committed: A commit -1 -1, A release 0 -1, B release 0 -2",
		"commit some keep": "held: A commit -1 -1",
		"release":          "returned: A release 0 -2, B release 0 -2",
		"extend":           "held: ",
		"reacquire":        "held: ",
		"return":           "! state",
		"return some":      "! excess",
		"expire":           "= held",
	},
	"committed": {
		"commit":           "= committed",
		"commit some":      "! state",
		"commit some keep": "! state",
		"release":          "! state",
		"extend":           "! state",
		"reacquire":        "! state",
		"return":           "returned: A return 3 0, B return 2 0",
		"return some":      "committed: A return 1 0",
		"expire":           "= committed",
	},
	"part returned": {
		"commit":           "= committed",
		"commit some":      "! state",
		"commit some keep": "! state",
		"release":          "! state",
		"extend":           "! state",
		"reacquire":        "! state",
		"return":           "returned: A return 2 0, B return 2 0",
		"return some":      "committed: A return 1 0",
		"expire":           "= committed",
	},
	"returned": {
		"commit":           "= returned",
		"commit some":      "! state",
		"commit some keep": "! state",
		"release":          "! state",
		"extend":           "! state",
		"reacquire":        "! state",
		"return":           "! state",
		"return some":      "! excess",
		"expire":           "= returned",
	},
}

// play is a ledger and what the table does to it.
type play struct {
	*ledger.Ledger
	url string
}

// make a deduction in a state. Its items are of its own.
func (p play) make(t *testing.T, name, state string) *stock.Deduction {
	t.Helper()
	stockUp(t, p.Ledger, "A "+name, 10)
	stockUp(t, p.Ledger, "B "+name, 10)
	r := order(name, "A "+name, "B "+name)
	r.Lines[0].Quantity, r.Lines[1].Quantity, r.Customer = 3, 2, "ann"
	if state != "committed" && state != "part returned" && state != "returned" {
		r.Hold = time.Hour
	}
	d := deduct(t, p.Ledger, r)
	steps := map[string]string{
		"held": "", "committed": "", "due": "time", "expired": "time, expire", "released": "release",
		"part held": "commit some keep", "part due": "commit some keep, time", "part expired": "commit some keep, time, expire",
		"part held, back": "commit some keep, return", "part returned": "return some", "returned": "return",
	}[state]
	for step := range strings.SplitSeq(steps, ", ") {
		switch step {
		case "":
		case "time":
			execute(t, p.url, "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", d.ID)
		default:
			if _, err := p.do(t.Context(), step, "first ", d); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
		}
	}
	return d
}

// do an action; what needs a key gets one that begins with prefix.
func (p play) do(ctx context.Context, action, prefix string, d *stock.Deduction) (*stock.Outcome, error) {
	one := []stock.LineQuantity{{No: 1, Quantity: 1}}
	key := keyed(prefix + action + d.ID.String())
	switch action {
	case "commit":
		return p.Commit(ctx, &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: d.ID})
	case "commit some":
		return p.Commit(ctx, &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: d.ID, Lines: one})
	case "commit some keep":
		return p.Commit(ctx, &stock.CommitRequest{Keyed: key, ID: d.ID, Lines: one, KeepRest: true})
	case "release":
		return p.Release(ctx, &stock.ReleaseRequest{Client: "shop", ID: d.ID})
	case "extend", "reacquire":
		return p.Extend(ctx, &stock.ExtendRequest{Client: "shop", ID: d.ID, Hold: 2 * time.Hour, Reacquire: action == "reacquire"})
	case "return":
		return p.Return(ctx, &stock.ReturnRequest{Keyed: key, ID: d.ID})
	case "return some":
		return p.Return(ctx, &stock.ReturnRequest{Keyed: key, ID: d.ID, Lines: one})
	case "expire":
		return p.Expire(ctx, d.ID, stock.Fence{})
	}
	panic(action)
}

// history of the items of a deduction: what happened after a version of each.
func (p play) history(t *testing.T, name string, after map[string]int64) string {
	t.Helper()
	var moves []string
	for _, sku := range []string{"A", "B"} {
		list, err := p.Movements(t.Context(), stock.MovementQuery{Item: at(sku + " " + name), AfterVersion: after[sku], Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			moves = append(moves, fmt.Sprintf("%s %s %d %d", sku, m.Kind, m.DeltaOnHand, m.DeltaHeld))
		}
	}
	return strings.Join(moves, ", ")
}

func (p play) versions(t *testing.T, name string) map[string]int64 {
	t.Helper()
	return map[string]int64{"A": levels(t, p.Ledger, "A "+name).Version, "B": levels(t, p.Ledger, "B "+name).Version}
}

// came says what an action came to, in the words of the table, but for the movements.
func came(out *stock.Outcome, err error) string {
	for word, sentinel := range map[string]error{
		"expired": stock.ErrHoldExpired, "state": stock.ErrWrongState, "excess": stock.ErrReturnExceeds, "field": stock.ErrInvalidField,
	} {
		if errors.Is(err, sentinel) {
			return "! " + word
		}
	}
	switch {
	case err != nil:
		return "! " + err.Error()
	case out.Replayed:
		return "= " + string(out.Deduction.State)
	}
	return string(out.Deduction.State) + ": "
}

func TestEveryActionInEveryState(t *testing.T) {
	t.Parallel()
	p := play{url: sandbox.Database(t)}
	p.Ledger = openAt(t, p.url)
	t.Run("all", func(t *testing.T) { // returns when its parallel subtests have ended
		for state, actions := range transitions {
			if len(actions) != len(transitions["held"]) {
				t.Errorf("%s has %d actions", state, len(actions))
			}
			for action, want := range actions {
				t.Run(state+"/"+action, func(t *testing.T) {
					t.Parallel()
					p.try(t, state, action, want)
				})
			}
		}
	})
	mustHold(t, p.url)
}

// try an action in a state, and then the same request once more.
func (p play) try(t *testing.T, state, action, want string) {
	t.Helper()
	name := state + " " + action
	d := p.make(t, name, state)
	before := p.versions(t, name)
	out, err := p.do(t.Context(), action, "", d)
	if got := came(out, err) + p.history(t, name, before); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	read, readErr := p.Deduction(t.Context(), "shop", d.ID)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err == nil {
		if diff := cmp.Diff(read.Deduction, out.Deduction); diff != "" {
			t.Errorf("what is read (-) is not what was answered (+):\n%s", diff)
		}
	}
	var wrong *stock.StateError
	if errors.As(err, &wrong) && wrong.Deduction.State != read.Deduction.State {
		t.Errorf("refused because it is %s, but it is %s", wrong.Deduction.State, read.Deduction.State)
	}
	after := p.versions(t, name)
	again, err := p.do(t.Context(), action, "", d)
	if diff := cmp.Diff(after, p.versions(t, name)); diff != "" {
		t.Errorf("a retry moves something:\n%s", diff)
	}
	retried := want
	if done, _, ok := strings.Cut(want, ":"); ok {
		retried = "= " + done
		if action == "extend" || action == "reacquire" {
			retried = "held: " // it moves the expiry again
		}
	}
	if got := came(again, err); got != retried {
		t.Errorf("retry: got %s, want %s", got, retried)
	}
}
