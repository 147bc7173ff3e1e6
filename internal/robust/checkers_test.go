package robust_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/robust"
)

const ms = time.Millisecond

func one(n int64) []robust.Line { return []robust.Line{{SKU: "A", Quantity: n}} }

// soundHistory has an item A: 5 units come in, 2 are sold, 1 is held and committed, 1 is held and expires, 9 are refused.
func soundHistory() *robust.History {
	level := func(version, onHand, held int64) robust.Level {
		return robust.Level{SKU: "A", OnHand: onHand, Held: held, Version: version}
	}
	answer := func(op robust.Op, at int, levels ...robust.Level) robust.Op {
		op.Client, op.Outcome, op.Levels = "shop", robust.Done, levels
		op.Call, op.Return = time.Duration(at)*10*ms, time.Duration(at)*10*ms+5*ms
		return op
	}
	moved := func(l robust.Level, onHandBy, heldBy int64, kind, deduction string, at time.Duration) robust.Movement {
		return robust.Movement{Level: l, OnHandBy: onHandBy, HeldBy: heldBy, Kind: kind, Deduction: deduction, At: at}
	}
	refused := answer(robust.Op{Kind: robust.Deduct, Key: "k9", Lines: one(9)}, 4)
	refused.Outcome, refused.Short = robust.Refused, []robust.Short{{SKU: "A", Requested: 9, Available: 2, Version: 3}}
	return &robust.History{
		Linger: ms,
		Ops: []robust.Op{
			answer(robust.Op{Kind: robust.Receive, Key: "k1", Lines: one(5)}, 1, level(1, 5, 0)),
			answer(robust.Op{Kind: robust.Deduct, Key: "k2", Lines: one(2), Deduction: "d2"}, 2, level(2, 3, 0)),
			answer(robust.Op{Kind: robust.Hold, Key: "k3", Lines: one(1), Deduction: "d3"}, 3, level(3, 3, 1)),
			refused,
			answer(robust.Op{Kind: robust.Commit, Deduction: "d3", Lines: one(1)}, 5, level(4, 2, 0)),
			answer(robust.Op{Kind: robust.Hold, Key: "k4", Lines: one(1), Deduction: "d4"}, 6, level(5, 2, 1)),
			answer(robust.Op{Kind: robust.Read}, 7, level(5, 2, 1)),
		},
		Ledger: robust.Ledger{
			Items: []robust.Level{level(6, 2, 0)},
			Movements: []robust.Movement{
				moved(level(1, 5, 0), 5, 0, "receive", "", 11*ms),
				moved(level(2, 3, 0), -2, 0, "deduct", "d2", 21*ms),
				moved(level(3, 3, 1), 0, 1, "hold", "d3", 31*ms),
				moved(level(4, 2, 0), -1, -1, "commit", "d3", 51*ms),
				moved(level(5, 2, 1), 0, 1, "hold", "d4", 61*ms),
				moved(level(6, 2, 0), 0, -1, "expire", "d4", 9000*ms),
			},
			Keys: []robust.KeyRow{
				{Client: "shop", Key: "k1", Kind: "adjust", SKU: "A", Version: 1},
				{Client: "shop", Key: "k2", Kind: "deduct", Deduction: "d2"},
				{Client: "shop", Key: "k3", Kind: "deduct", Deduction: "d3"},
				{Client: "shop", Key: "k4", Kind: "deduct", Deduction: "d4"},
			},
			Deductions: []robust.Deduction{
				{ID: "d2", Client: "shop", State: "committed", Lines: []robust.DeductionLine{{SKU: "A", Quantity: 2, Committed: 2}}},
				{ID: "d3", Client: "shop", State: "committed", Expires: 5 * time.Second, Lines: []robust.DeductionLine{{SKU: "A", Quantity: 1, Committed: 1}}},
				{ID: "d4", Client: "shop", State: "expired", Expires: 9 * time.Second, Lines: []robust.DeductionLine{{SKU: "A", Quantity: 1}}},
			},
		},
		Gate: []robust.Base{{SKU: "A", Available: 1, Version: 5}},
	}
}

func rulesOf(found []robust.Violation) []string {
	var rules []string
	for _, v := range found {
		if !slices.Contains(rules, v.Rule) {
			rules = append(rules, v.Rule)
		}
	}
	return rules
}

func check(h *robust.History) (order, linear []robust.Violation) {
	return robust.CheckOrder(h), robust.CheckLinear(h, time.Minute, "")
}

func TestASoundHistoryPasses(t *testing.T) {
	t.Parallel()
	if order, linear := check(soundHistory()); order != nil || linear != nil {
		t.Errorf("found %v, %v", order, linear)
	}
	path := filepath.Join(t.TempDir(), "history.json")
	if err := soundHistory().Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := robust.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(soundHistory(), loaded); diff != "" {
		t.Errorf("saved and loaded (-want +got):\n%s", diff)
	}
}

// TestEveryRuleIsBrokenBySomething spoils the sound history in one place after the other.
func TestEveryRuleIsBrokenBySomething(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		rule   string
		linear bool // Porcupine sees it too
		spoil  func(h *robust.History)
	}{
		{"a version is missing", "versions", false, func(h *robust.History) { h.Ledger.Movements[2].Version = 7 }},
		{"movements do not add up", "sums", false, func(h *robust.History) { h.Ledger.Movements[1].OnHand = 4 }},
		{"the item is not what its movements say", "sums", false, func(h *robust.History) { h.Ledger.Items[0].OnHand = 3 }},
		{"less than nothing", "negative", true, func(h *robust.History) {
			h.Ledger.Movements[1].OnHandBy, h.Ledger.Movements[1].OnHand = -6, -1
		}},
		{"a line says something else", "lines", false, func(h *robust.History) { h.Ledger.Deductions[0].Lines[0].Committed = 1 }},
		{"a hold holds what is not held", "lines", false, func(h *robust.History) { h.Ledger.Deductions[2].Lines[0].Held = 1 }},
		{"a deduction is lost", "acknowledged", false, func(h *robust.History) { h.Ledger.Keys = h.Ledger.Keys[:3] }},
		{"a commit is lost", "acknowledged", false, func(h *robust.History) { h.Ledger.Movements[3].Kind = "release" }},
		{"a deduction cannot be found", "acknowledged", false, func(h *robust.History) {
			h.Ops[4].Outcome, h.Ops[4].Problem = robust.Refused, "urn:holdfast:problem:not-found"
		}},
		{"a key belongs to another deduction", "acknowledged", false, func(h *robust.History) { h.Ops[1].Deduction = "d3" }},
		{"a key has two effects", "once", false, func(h *robust.History) {
			h.Ledger.Keys = append(h.Ledger.Keys, h.Ledger.Keys[1])
		}},
		{"a key nobody sent", "unasked", false, func(h *robust.History) { h.Ops = slices.Delete(h.Ops, 5, 6) }},
		{"refused and done", "refused", false, func(h *robust.History) { h.Ops[1].Outcome = robust.Refused }},
		{"another amount", "amount", false, func(h *robust.History) { h.Ops[1].Lines[0].Quantity = 1 }},
		{"an answer with wrong figures", "reported", true, func(h *robust.History) { h.Ops[1].Levels[0].OnHand = 2 }},
		{"a stale read", "real time", true, func(h *robust.History) {
			h.Ops[6].Levels[0] = robust.Level{SKU: "A", OnHand: 2, Version: 4}
		}},
		{"done before it was asked for", "real time", true, func(h *robust.History) { h.Ops[1].Call, h.Ops[1].Return = 200*ms, 205*ms }},
		{"committed too late", "expiry", false, func(h *robust.History) { h.Ledger.Deductions[1].Expires = 50 * ms }},
		{"expired too early", "expiry", false, func(h *robust.History) { h.Ledger.Deductions[2].Expires = time.Minute }},
		{"refused what is there", "refusal", false, func(h *robust.History) {
			h.Ops[3].Lines, h.Ops[3].Short[0] = one(2), robust.Short{SKU: "A", Requested: 2, Available: 0, Version: 3}
			h.Ops[3].Call, h.Ops[3].Return = 3*time.Second, 3001*ms // when nothing changed for more than a second
			h.Ledger.Movements[5].HeldBy, h.Ledger.Movements[5].Held, h.Ledger.Movements[5].Kind = 0, 1, "configure"
			h.Ledger.Movements[4].HeldBy, h.Ledger.Movements[4].Held = 0, 0
		}},
		{"a refusal that is none", "refusal", false, func(h *robust.History) { h.Ops[3].Short[0].Available = 9 }},
		{"a gate that counts by itself", "gate", false, func(h *robust.History) { h.Gate[0].Available = 2 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := soundHistory()
			c.spoil(h)
			order, linear := check(h)
			if !slices.Contains(rulesOf(order), c.rule) {
				t.Errorf("%q is not found to be broken, but %v", c.rule, order)
			}
			if c.linear && len(linear) == 0 {
				t.Error("Porcupine finds an order for it")
			}
		})
	}
}

// TestHoldsLastByTheLedgersClock: where it was set forward a hold is over at once, and where it was set back it is not.
func TestHoldsLastByTheLedgersClock(t *testing.T) {
	t.Parallel()
	for ahead, sound := range map[time.Duration]bool{24 * time.Hour: true, 0: false, -24 * time.Hour: false} {
		h := soundHistory()
		expired := &h.Ledger.Movements[5]
		expired.At, expired.Ahead = 100*ms, ahead
		if found := robust.CheckOrder(h); sound == slices.Contains(rulesOf(found), "expiry") || sound && found != nil {
			t.Errorf("%v ahead: found %v", ahead, found)
		}
	}
}

// TestRefusalsMayBeConservative: what a request under way wants is refused to others, and so is what was gone a moment ago.
func TestRefusalsMayBeConservative(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(h *robust.History){
		"a request under way": func(h *robust.History) {
			h.Ops[6].Kind, h.Ops[6].Outcome, h.Ops[6].Call = robust.Deduct, robust.Unknown, 2900*ms
		},
		"a second ago": func(h *robust.History) { h.Ops[3].Call, h.Ops[3].Return = 900*ms, 901*ms },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := soundHistory()
			h.Ops[6].Lines, h.Ops[6].Levels = []robust.Line{{SKU: "A", Quantity: 2}}, nil
			h.Ops[3].Lines[0].Quantity, h.Ops[3].Short[0] = 3, robust.Short{SKU: "A", Requested: 3, Available: 0, Version: 1}
			h.Ops[3].Call, h.Ops[3].Return = 3*time.Second, 3001*ms
			change(h)
			for _, v := range robust.CheckOrder(h) {
				if v.Rule == "refusal" {
					t.Error(v)
				}
			}
		})
	}
}

func TestAnUnansweredOperationMayHaveHappenedOrNot(t *testing.T) {
	t.Parallel()
	h := soundHistory()
	h.Ops[1].Outcome, h.Ops[1].Deduction, h.Ops[1].Levels = robust.Unknown, "", nil
	lost := h.Ops[1]
	lost.Key = "never arrived"
	h.Ops = append(h.Ops, lost)
	if order, linear := check(h); order != nil || linear != nil {
		t.Errorf("found %v, %v", order, linear)
	}
}

// TestALateSendingMayComeAfterARefusal: nothing was done by then, and an earlier sending arrived later. Who reads in between sees nothing of it.
func TestALateSendingMayComeAfterARefusal(t *testing.T) {
	t.Parallel()
	h := soundHistory()
	late := &h.Ops[1]
	late.Outcome, late.Deduction, late.Levels, late.Doubtful = robust.Refused, "", nil, true
	late.Call, late.Return = 12*ms, 16*ms
	h.Ops = append(h.Ops, robust.Op{
		Client: "shop", Kind: robust.Read, Outcome: robust.Done, Call: 17 * ms, Return: 18 * ms,
		Levels: []robust.Level{{SKU: "A", OnHand: 5, Version: 1}},
	})
	if order, linear := check(h); order != nil || linear != nil {
		t.Errorf("found %v, %v", order, linear)
	}
}

// TestCheckersTakeLongHistories: a busy item has tens of thousands of operations.
func TestCheckersTakeLongHistories(t *testing.T) {
	t.Parallel()
	const n, clients = 20_000, 32
	h := &robust.History{}
	for i := range int64(n) {
		id := "d" + strconv.FormatInt(i, 10)
		after := robust.Level{SKU: "A", OnHand: i + 1, Version: i + 1}
		at := time.Duration(i) * ms
		h.Ops = append(h.Ops, robust.Op{
			Client: "shop", Kind: robust.Receive, Key: id, Lines: []robust.Line{{SKU: "A", Quantity: 1}}, Outcome: robust.Done,
			Call: at - clients*ms/2, Return: at + clients*ms/2, Levels: []robust.Level{after}, Process: int(i % clients),
		})
		h.Ledger.Movements = append(h.Ledger.Movements, robust.Movement{Level: after, OnHandBy: 1, Kind: "receive", At: at})
		h.Ledger.Keys = append(h.Ledger.Keys, robust.KeyRow{Client: "shop", Key: id, Kind: "adjust", SKU: "A", Version: i + 1})
	}
	h.Ledger.Items = []robust.Level{{SKU: "A", OnHand: n, Version: n}}
	order, linear := check(h)
	if order != nil || linear != nil {
		t.Errorf("found %v, %v", order, linear)
	}
}
