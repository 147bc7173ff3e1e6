package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// honest is what a replay sees of a service that does everything right: invoice 2 is refused, C3 comes back in part from
// invoice 1 and for the rest, since invoice 2 was refused, as received.
func honest(t *testing.T) *evidence {
	t.Helper()
	log := parseLog(t, "1,A,4,", "1,B,1,", "2,A,8,", "2,B,1,", "2,C,5,", "C3,A,-9,", "4,A,10,")
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	level := func(sku string, onHand, version int64) levels {
		return levels{SKU: sku, Location: "default", OnHand: onHand, Available: onHand, Version: version}
	}
	e := &evidence{
		log: log,
		start: map[string]levels{
			"A": level("A", 10, 1), "B": level("B", 1, 1), "C": level("C", 7, 1),
		},
		final: map[string]levels{
			"A": level("A", 5, 5), "B": level("B", 0, 2), "C": level("C", 7, 1),
		},
		history: map[string][]movement{
			"A": {
				{Version: 1, Kind: "receive", DeltaOnHand: 10, OnHand: 10},
				{Version: 2, Kind: "deduct", DeltaOnHand: -4, OnHand: 6, Deduction: "d1"},
				{Version: 3, Kind: "return", DeltaOnHand: 1, OnHand: 7, Deduction: "d1"},
				{Version: 4, Kind: "receive", DeltaOnHand: 8, OnHand: 15},
				{Version: 5, Kind: "deduct", DeltaOnHand: -10, OnHand: 5, Deduction: "d4"},
			},
			"B": {{Version: 1, Kind: "receive", DeltaOnHand: 1, OnHand: 1}, {Version: 2, Kind: "deduct", DeltaOnHand: -1, Deduction: "d1"}},
			"C": {{Version: 1, Kind: "receive", DeltaOnHand: 7, OnHand: 7}},
		},
		results: []result{
			{
				verdict: accepted, deduction: "d1", levels: []levels{level("A", 6, 2), level("B", 0, 2)},
				known: []int64{1, 1}, sent: at(0), answered: at(1),
			},
			{
				verdict: refused, known: []int64{2, 2, 0}, sent: at(2), answered: at(3),
				short: []shortLine{{"/lines/0/quantity", "A", 8, 6, 2}, {"/lines/1/quantity", "B", 1, 0, 2}},
			},
			{returns: []returned{
				{verdict: accepted, received: true, version: 4, levels: []levels{level("A", 15, 4)}},
				{verdict: accepted, levels: []levels{level("A", 7, 3)}},
			}},
			{verdict: accepted, deduction: "d4", levels: []levels{level("A", 5, 5)}, known: []int64{4}, sent: at(4), answered: at(5)},
		},
	}
	if back := log.orders[2].back; len(back) != 2 || back[0].sale != 1 || back[0].quantity != 8 || back[1].sale != 0 {
		t.Fatalf("the log is not what the test is about: %+v", back)
	}
	return e
}

func TestChecksFindNothingInAnHonestReplay(t *testing.T) {
	t.Parallel()
	for _, c := range honest(t).checks() {
		if c.Violations > 0 {
			t.Errorf("%s: %q", c.Name, c.Examples)
		}
	}
}

// A checker is worth what it finds: each case is a defect that a service could have, and the check that has to find it.
func TestChecksFindDefects(t *testing.T) {
	t.Parallel()
	const (
		ledger = iota
		whole
		stock
		signs
		figures
		refusals
	)
	for name, c := range map[string]struct {
		break_ func(*evidence)
		finds  int
		says   string
	}{
		"a gap in the versions":          {func(e *evidence) { e.history["A"][3].Version = 6 }, ledger, "has version 6"},
		"a movement lost":                {func(e *evidence) { e.history["B"] = e.history["B"][:1] }, ledger, "1 movements"},
		"a movement that does not add":   {func(e *evidence) { e.history["A"][1].OnHand = 7 }, ledger, "add up to 6"},
		"a stock that is not the sum":    {func(e *evidence) { set := e.final["C"]; set.OnHand = 8; e.final["C"] = set }, ledger, "8 on hand"},
		"an order taken twice":           {func(e *evidence) { e.again("B", "d1", -1) }, whole, `"B" of deduction d1: the answers have 1 more`},
		"a line not taken":               {func(e *evidence) { e.results[0].deduction = "dx" }, whole, "no answer accounts for"},
		"another quantity taken":         {func(e *evidence) { e.log.orders[3].lines[0].quantity = 11 }, whole, "deduction d4"},
		"a refused order taken":          {func(e *evidence) { e.again("C", "d2", -5) }, whole, "deduction d2"},
		"a return booked twice":          {func(e *evidence) { e.again("A", "d1", 1) }, whole, `"A" of deduction d1`},
		"something from nowhere":         {func(e *evidence) { e.again("C", "", 3) }, whole, "deduction none"},
		"a receipt that is not there":    {func(e *evidence) { e.results[2].returns[0].version = 9 }, whole, "deduction none"},
		"stock too high":                 {func(e *evidence) { set := e.final["A"]; set.OnHand++; e.final["A"] = set }, stock, "6 are there"},
		"stock too low":                  {func(e *evidence) { set := e.final["C"]; set.OnHand--; e.final["C"] = set }, stock, "6 are there"},
		"an answer below zero":           {func(e *evidence) { e.results[3].levels[0].OnHand = -1 }, signs, "-1 on hand"},
		"a negative held":                {func(e *evidence) { e.history["A"][4].Held = -1 }, signs, "-1 held"},
		"less than nothing available":    {func(e *evidence) { e.results[1].short[1].Available = -1 }, signs, "-1 available"},
		"an answer of another figure":    {func(e *evidence) { e.results[0].levels[0].OnHand++ }, figures, "in the ledger 6"},
		"an answer of no version":        {func(e *evidence) { e.results[0].levels[0].Version = 77 }, figures, "version 77"},
		"available that does not add up": {func(e *evidence) { e.results[0].levels[0].Available-- }, figures, "5 available of 6"},
		"a refusal without reason":       {func(e *evidence) { e.results[1].short = nil }, refusals, "without a short line"},
		"a short line not listed":        {func(e *evidence) { e.results[1].short = e.results[1].short[:1] }, refusals, `1 of "B" are not there`},
		"a line listed that is not":      {func(e *evidence) { e.list("/lines/2/quantity", "C", 5, 7, 1) }, refusals, "7 available of 5"},
		"a line listed twice":            {func(e *evidence) { e.list("/lines/1/quantity", "B", 1, 0, 2) }, refusals, "3 short lines, but 2 places"},
		"a line listed elsewhere":        {func(e *evidence) { e.results[1].short[1].Pointer = "/lines/2/quantity" }, refusals, "not about"},
		"another quantity requested":     {func(e *evidence) { e.results[1].short[0].Requested = 9 }, refusals, "8 requested, not 9"},
		"more available than there is":   {func(e *evidence) { e.results[1].short[0].Available = 7 }, refusals, "7 available at version 2"},
		"short of a version to come":     {func(e *evidence) { e.results[1].short[0].Version = 6 }, refusals, "no version 6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := honest(t)
			c.break_(e)
			got := e.checks()[c.finds]
			if got.Violations == 0 || !slices.ContainsFunc(got.Examples, func(s string) bool { return strings.Contains(s, c.says) }) {
				t.Errorf("%q finds %d: %q, want %q", got.Name, got.Violations, got.Examples, c.says)
			}
		})
	}
}

// again adds a movement that fits the history.
func (e *evidence) again(code, deduction string, delta int64) {
	last := e.history[code][len(e.history[code])-1]
	m := movement{Version: last.Version + 1, Kind: "deduct", DeltaOnHand: delta, OnHand: last.OnHand + delta, Deduction: deduction}
	switch {
	case deduction == "":
		m.Kind = "adjust"
	case delta > 0:
		m.Kind = "return"
	}
	e.history[code] = append(e.history[code], m)
}

func (e *evidence) list(pointer, sku string, requested, available, version int64) {
	e.results[1].short = append(e.results[1].short, shortLine{pointer, sku, requested, available, version})
}

// A line that was there when the order was sent, and gone when it was answered, may be listed or not.
func TestARefusalMayBeOfAnyMomentOfItsTime(t *testing.T) {
	t.Parallel()
	e := honest(t)
	e.results[1].known[1] = 1 // nobody had seen B sold out yet
	e.results[1].short = e.results[1].short[:1]
	if c := e.checks()[5]; c.Violations > 0 {
		t.Errorf("%q", c.Examples)
	}
	// Not so a line that only became possible by what was sent after the answer.
	e = honest(t)
	e.history["B"] = append(e.history["B"], movement{Version: 3, Kind: "receive", DeltaOnHand: 5, OnHand: 5},
		movement{Version: 4, Kind: "deduct", DeltaOnHand: -1, OnHand: 4, Deduction: "d4"})
	e.log.orders[3].lines = append(e.log.orders[3].lines, orderLine{"B", 1})
	e.results[1].short = e.results[1].short[:1]
	if c := e.checks()[5]; c.Violations > 0 { // the receipt may have been before the answer
		t.Errorf("%q", c.Examples)
	}
	e.history["B"][2], e.history["B"][3] = e.history["B"][3], e.history["B"][2] // now it was after
	e.history["B"][2].Version, e.history["B"][3].Version = 3, 4
	e.orders, e.booked = nil, nil
	if c := e.checks()[5]; c.Violations == 0 {
		t.Error("a line is not listed, though it could not be served before a later order moved it")
	}
}

func TestCheckOfASecondPass(t *testing.T) {
	t.Parallel()
	second := func() *evidence {
		e := honest(t)
		e.start = e.final
		for i := range e.results {
			e.results[i].replayed = true
			for j := range e.results[i].returns {
				e.results[i].returns[j].replayed = true
			}
		}
		return e
	}
	e := second()
	for _, c := range append(e.checks(), e.checkReplays()) {
		if c.Violations > 0 {
			t.Errorf("%s: %q", c.Name, c.Examples)
		}
	}
	for name, spoil := range map[string]func(*evidence){
		"an order done now":   func(e *evidence) { e.results[0].replayed = false },
		"a return done now":   func(e *evidence) { e.results[2].returns[1].replayed = false },
		"a version that grew": func(e *evidence) { e.final = map[string]levels{"A": e.final["A"], "B": {}, "C": e.final["C"]} },
	} {
		e := second()
		spoil(e)
		if c := e.checkReplays(); c.Violations == 0 {
			t.Errorf("%s: nothing found", name)
		}
	}
	// An order that is called a replay but was made since the start counts as of now.
	e = second()
	e.start = map[string]levels{"A": {OnHand: 15, Version: 4}, "B": e.start["B"], "C": e.start["C"]}
	for _, c := range e.checks()[:3] {
		if c.Violations > 0 {
			t.Errorf("%s: %q", c.Name, c.Examples)
		}
	}
}

func TestOnlyTheFirstViolationsAreShown(t *testing.T) {
	t.Parallel()
	var c check
	for n := range 50 {
		c.violated("%d", n)
	}
	if c.Violations != 50 || len(c.Examples) != maxExamples || c.Examples[0] != "0" {
		t.Errorf("%+v", c)
	}
}

func TestReportReadsWell(t *testing.T) {
	t.Parallel()
	e := honest(t)
	r := replay{api: newCaller("", ""), log: e.log, results: e.results}
	report := r.report(2 * time.Second)
	report.conclude(e.checks())
	var text strings.Builder
	if err := report.print(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3: 2 accepted (0 of them before), 1 refused with 2 short lines\n", "15 units taken\n",
		"1 cancellations: 1 lines returned to their sale, 1 received because no accepted sale has them",
		"1 deductions/s for 2.0 s", "ok        final stock = initial − accepted + returned (3 codes)\n", "\neverything agrees\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	if !report.OK {
		t.Error("not OK")
	}
	e.results[0].levels[0].OnHand++
	if report.conclude(e.checks()); report.OK || report.Result != "1 violation" {
		t.Errorf("%v %q after a violation", report.OK, report.Result)
	}
	report.Orders.Failed["unknown-item"] = 1
	e.results[0].levels[0].OnHand--
	if report.conclude(e.checks()); report.OK {
		t.Error("OK, though an order failed")
	}
	if got := strings.Join([]string{thousands(1), thousands(-123), thousands(1234567), thousands(-1234)}, " "); got != "1 -123 1,234,567 -1,234" {
		t.Errorf("thousands: %s", got)
	}
}
