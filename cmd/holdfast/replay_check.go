package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// evidence is everything a replay has seen. The checks need nothing else, so that they can be shown cases in which the
// service is wrong.
type evidence struct {
	log     *orderLog
	results []result
	start   map[string]levels     // by code, before the first order
	final   map[string]levels     // after the last answer
	history map[string][]movement // by code, all of it

	booked map[booking]int64 // the version of each movement that an answer accounts for
	orders map[string][]placed
}

// booking names a movement: that of a deduction and a code, or, without deduction, that of a version.
type booking struct {
	code, deduction string
	version         int64
}

// placed is when an order moved a code, by our clock and by the ledger's version.
type placed struct {
	sent    time.Time
	version int64
}

// check is one thing that must hold, and every place where it does not.
type check struct {
	Name       string   `json:"name"`
	Checked    string   `json:"checked"` // how much there was to look at
	Violations int      `json:"violations"`
	Examples   []string `json:"examples,omitempty"` // the first of them
}

// maxExamples bounds the violations of one check that are shown.
const maxExamples = 10

func (c *check) violated(format string, args ...any) {
	if c.Violations++; c.Violations <= maxExamples {
		c.Examples = append(c.Examples, fmt.Sprintf(format, args...))
	}
}

// checks compares answers, stock and ledger.
func (e *evidence) checks() []check {
	return []check{
		e.checkLedger(), // first: the others rest on histories without gaps
		e.checkWhole(),
		e.checkStock(),
		e.checkSigns(),
		e.checkFigures(),
		e.checkRefusals(),
	}
}

// checkLedger: the movements of an item are its versions 1, 2, 3 …, and add up to what is there.
func (e *evidence) checkLedger() check {
	c := check{Name: "movements add up to the stock, versions without gaps"}
	n := 0
	for _, code := range e.log.codes {
		var onHand, held int64
		for i, m := range e.history[code] {
			n++
			onHand, held = onHand+m.DeltaOnHand, held+m.DeltaHeld
			if m.Version != int64(i)+1 {
				c.violated("%q: movement %d has version %d", code, i+1, m.Version)
			}
			if m.OnHand != onHand || m.Held != held {
				c.violated("%q version %d: %d on hand and %d held, but the movements add up to %d and %d", code, m.Version, m.OnHand, m.Held, onHand, held)
			}
		}
		final := e.final[code]
		if final.OnHand != onHand || final.Held != held || final.Version != int64(len(e.history[code])) {
			c.violated("%q: stock is %d on hand, %d held at version %d, but %d movements add up to %d and %d",
				code, final.OnHand, final.Held, final.Version, len(e.history[code]), onHand, held)
		}
	}
	c.Checked = count(n, "movement")
	return c
}

// checkWhole: each line of an accepted order, and each accepted return, is in the ledger once with its quantity, and
// since the start there is nothing else. So an order is there whole or not at all.
func (e *evidence) checkWhole() check {
	c := check{Name: "an invoice is in the ledger once and whole, or not at all"}
	wanted, orders := e.wanted()
	e.booked = make(map[booking]int64)
	for _, code := range e.log.codes {
		for _, m := range e.history[code] {
			b := booking{code: code, deduction: m.Deduction, version: m.Version}
			if m.Deduction != "" {
				b.version = kindOf(m.Kind)
			}
			left, ours := wanted[b]
			switch {
			case ours:
				wanted[b] = left - m.DeltaOnHand
				e.booked[b] = max(e.booked[b], m.Version)
			case m.Version > e.start[code].Version:
				c.violated("%q version %d: a %s of %d that no answer accounts for (deduction %s)", code, m.Version, m.Kind, m.DeltaOnHand, cmp.Or(m.Deduction, "none"))
			}
		}
	}
	for b, left := range wanted {
		if left != 0 {
			c.violated("%q of deduction %s: the answers have %d more than the ledger", b.code, cmp.Or(b.deduction, "none"), left)
		}
	}
	slices.Sort(c.Examples)
	c.Checked = count(orders, "accepted invoice")
	return c
}

// Movements of a deduction are told apart by their kind, which takes the place of the version in a booking.
const (
	bookedDeduct = -iota - 1
	bookedReturn
	bookedOther
)

func kindOf(movement string) int64 {
	switch movement {
	case "deduct":
		return bookedDeduct
	case "return":
		return bookedReturn
	}
	return bookedOther
}

// wanted is by how much the answers say each booking changed the stock, and how many invoices were accepted.
func (e *evidence) wanted() (wanted map[booking]int64, orders int) {
	wanted = make(map[booking]int64)
	for i := range e.log.orders {
		o, r := &e.log.orders[i], &e.results[i]
		if r.verdict == accepted {
			orders++
			for _, l := range o.lines {
				wanted[booking{l.code, r.deduction, bookedDeduct}] -= l.quantity
			}
		}
		for j := range r.returns {
			if r.returns[j].verdict == accepted {
				wanted[e.bookingOf(&o.back[j], &r.returns[j])] += o.back[j].quantity
			}
		}
	}
	return wanted, orders
}

func (e *evidence) bookingOf(b *comeback, r *returned) booking {
	if r.received {
		return booking{b.code, "", r.version}
	}
	return booking{b.code, e.results[b.sale].deduction, bookedReturn}
}

// checkStock: what is there now is what was there, less what was accepted, and what came back. What the answers call done before
// the start is in the initial stock already. It rests on checkWhole, which finds out when that was.
func (e *evidence) checkStock() check {
	c := check{Name: "final stock = initial − accepted + returned", Checked: count(len(e.log.codes), "code")}
	change := make(map[string]int64)
	since := func(b booking) bool { return e.booked[b] > e.start[b.code].Version }
	for i := range e.log.orders {
		o, r := &e.log.orders[i], &e.results[i]
		if r.verdict == accepted {
			for _, l := range o.lines {
				if !r.replayed || since(booking{l.code, r.deduction, bookedDeduct}) {
					change[l.code] -= l.quantity
				}
			}
		}
		for j := range r.returns {
			back := &r.returns[j]
			if back.verdict == accepted && (!back.replayed || since(e.bookingOf(&o.back[j], back))) {
				change[o.back[j].code] += o.back[j].quantity
			}
		}
	}
	for _, code := range e.log.codes {
		initial, final := e.start[code].OnHand, e.final[code].OnHand
		if initial+change[code] != final {
			c.violated("%q: %d were there, the answers changed that by %+d, %d are there", code, initial, change[code], final)
		}
	}
	return c
}

// checkSigns: no figure is below zero, wherever it is shown.
func (e *evidence) checkSigns() check {
	c := check{Name: "no figure is negative, in no answer and no movement"}
	n := 0
	e.eachFigure(func(from string, l *levels) {
		n++
		if l.OnHand < 0 || l.Held < 0 || l.Available+l.SafetyStock < 0 {
			c.violated("%s: %q has %d on hand, %d held, %d available", from, l.SKU, l.OnHand, l.Held, l.Available)
		}
	})
	for i := range e.results {
		for _, s := range e.results[i].short {
			n++
			if s.Available+e.start[s.SKU].SafetyStock < 0 {
				c.violated("invoice %s: %q is short with %d available", e.log.orders[i].invoice, s.SKU, s.Available)
			}
		}
	}
	for _, code := range e.log.codes {
		for _, m := range e.history[code] {
			n++
			if m.OnHand < 0 || m.Held < 0 {
				c.violated("%q version %d: %d on hand, %d held", code, m.Version, m.OnHand, m.Held)
			}
		}
	}
	c.Checked = count(n, "figure")
	return c
}

// checkFigures: what an answer says of an item at a version is what the ledger has at that version.
func (e *evidence) checkFigures() check {
	c := check{Name: "every answer's figures are the ledger's at their version"}
	n := 0
	e.eachFigure(func(from string, l *levels) {
		n++
		onHand, held, ok := e.at(l.SKU, l.Version)
		switch {
		case !ok || l.Location != "default":
			c.violated("%s: %q at %s has version %d, which the ledger has not", from, l.SKU, l.Location, l.Version)
		case l.OnHand != onHand || l.Held != held:
			c.violated("%s: %q version %d has %d on hand, %d held; in the ledger %d and %d", from, l.SKU, l.Version, l.OnHand, l.Held, onHand, held)
		case l.Available != l.OnHand-l.Held-l.SafetyStock:
			c.violated("%s: %q has %d available of %d on hand, %d held, %d safety stock", from, l.SKU, l.Available, l.OnHand, l.Held, l.SafetyStock)
		}
	})
	c.Checked = count(n, "figure")
	return c
}

// eachFigure calls look with every figure that was answered or read, and where it comes from.
func (e *evidence) eachFigure(look func(from string, l *levels)) {
	for _, of := range []struct {
		name string
		all  map[string]levels
	}{{"initial stock", e.start}, {"final stock", e.final}} {
		for _, code := range e.log.codes {
			if l, ok := of.all[code]; ok {
				look(of.name, &l)
			}
		}
	}
	for i := range e.results {
		from := "invoice " + e.log.orders[i].invoice
		for j := range e.results[i].levels {
			look(from, &e.results[i].levels[j])
		}
		for j := range e.results[i].returns {
			for k := range e.results[i].returns[j].levels {
				look(from, &e.results[i].returns[j].levels[k])
			}
		}
	}
}

// at is what the ledger has of an item at a version; ok is false when it has no such version.
func (e *evidence) at(code string, version int64) (onHand, held int64, ok bool) {
	history := e.history[code]
	if _, exists := e.final[code]; !exists || version < 0 || version > int64(len(history)) {
		return 0, 0, false
	}
	if version == 0 {
		return 0, 0, true
	}
	m := history[version-1]
	return m.OnHand, m.Held, true
}

// checkRefusals: a refused order has at least one short line; a line that is listed is short, by figures that the ledger has; and
// a line that is not listed could have been served at some moment between the question and the answer.
func (e *evidence) checkRefusals() check {
	c := check{Name: "every refusal lists all its short lines, and no other"}
	n := 0
	for i := range e.results {
		r := &e.results[i]
		if r.verdict != refused {
			continue
		}
		n++
		o := &e.log.orders[i]
		if len(r.short) == 0 {
			c.violated("invoice %s: refused without a short line", o.invoice)
		}
		listed := make(map[string]bool, len(r.short))
		for _, s := range r.short {
			listed[s.Pointer] = true
			if why := e.notShort(o, s); why != "" {
				c.violated("invoice %s: %s", o.invoice, why)
			}
		}
		if len(listed) != len(r.short) {
			c.violated("invoice %s: %d short lines, but %d places", o.invoice, len(r.short), len(listed))
		}
		for j, l := range o.lines {
			if !listed[pointerOf(j)] && !e.couldServe(l, r.known[j], r.answered) {
				c.violated("invoice %s: %d of %q are not there, but it is not among the short lines", o.invoice, l.quantity, l.code)
			}
		}
	}
	c.Checked = count(n, "refusal")
	return c
}

func pointerOf(line int) string { return "/lines/" + strconv.Itoa(line) + "/quantity" }

// notShort says what is wrong with a line that is called short. Less may be said to be available than the ledger has, because the
// gate keeps units back for requests under way; never more.
func (e *evidence) notShort(o *order, s shortLine) string {
	line := slices.IndexFunc(o.lines, func(l orderLine) bool { return l.code == s.SKU })
	if line < 0 || s.Pointer != pointerOf(line) {
		return fmt.Sprintf("short line %s is not about %q", s.Pointer, s.SKU)
	}
	onHand, held, ok := e.at(s.SKU, s.Version)
	switch {
	case s.Requested != o.lines[line].quantity:
		return fmt.Sprintf("%q: %d requested, not %d", s.SKU, o.lines[line].quantity, s.Requested)
	case s.Requested <= s.Available:
		return fmt.Sprintf("%q is called short with %d available of %d requested", s.SKU, s.Available, s.Requested)
	case !ok:
		return fmt.Sprintf("%q: the ledger has no version %d", s.SKU, s.Version)
	case s.Available > onHand-held-e.start[s.SKU].SafetyStock:
		return fmt.Sprintf("%q: %d available at version %d, where the ledger has %d on hand, %d held", s.SKU, s.Available, s.Version, onHand, held)
	}
	return ""
}

// couldServe reports whether a line could have been served between the version that was known when it was sent and the
// last one there can have been when it was answered: the one before any that an order sent later has made.
func (e *evidence) couldServe(l orderLine, known int64, answered time.Time) bool {
	last := int64(len(e.history[l.code]))
	for _, p := range e.placed(l.code) {
		if p.sent.After(answered) {
			last = min(last, p.version-1)
		}
	}
	safety := e.start[l.code].SafetyStock
	for v := known; v <= last; v++ {
		if onHand, held, ok := e.at(l.code, v); ok && onHand-held-safety >= l.quantity {
			return true
		}
	}
	return false
}

// placed lists when orders that were accepted since the start moved a code.
func (e *evidence) placed(code string) []placed {
	if e.orders == nil {
		e.orders = make(map[string][]placed)
		for i := range e.results {
			r := &e.results[i]
			if r.verdict != accepted || r.replayed {
				continue
			}
			for _, l := range e.log.orders[i].lines {
				if v := e.booked[booking{l.code, r.deduction, bookedDeduct}]; v > 0 {
					e.orders[l.code] = append(e.orders[l.code], placed{r.sent, v})
				}
			}
		}
	}
	return e.orders[code]
}

// checkReplays: a log that was sent before changes nothing, and is answered as done before.
func (e *evidence) checkReplays() check {
	c := check{Name: "everything was done before, and nothing changed"}
	n := 0
	for i := range e.results {
		o, r := &e.log.orders[i], &e.results[i]
		if r.verdict == accepted {
			n++
			if !r.replayed {
				c.violated("invoice %s: done now", o.invoice)
			}
		}
		for j := range r.returns {
			if r.returns[j].verdict == accepted {
				n++
				if !r.returns[j].replayed {
					c.violated("invoice %s: %q done now", o.invoice, o.back[j].code)
				}
			}
		}
	}
	for _, code := range e.log.codes {
		if e.start[code] != e.final[code] {
			c.violated("%q: version %d became %d", code, e.start[code].Version, e.final[code].Version)
		}
	}
	c.Checked = count(n, "answer")
	return c
}
