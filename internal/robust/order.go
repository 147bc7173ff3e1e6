package robust

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// Violation is a rule that a history breaks, and where.
type Violation struct{ Rule, Detail string }

func (v Violation) String() string { return v.Rule + ": " + v.Detail }

// Tolerances of rules about time.
const (
	// freshness is how old the figures of a refusal may be, as promised, and a little for the clocks of three processes.
	freshness = time.Second + 250*time.Millisecond
	// expirySlack is how long a statement may take from its clock reading to its commit.
	expirySlack = 4 * time.Second
	defaultWait = time.Second
	never       = time.Duration(math.MaxInt64)
)

// Types of problems.
const (
	problemNotFound    = "urn:holdfast:problem:not-found" // a deduction is not there
	problemOverloaded  = "urn:holdfast:problem:overloaded"
	problemUnavailable = "urn:holdfast:problem:ledger-unavailable"
	problemRateLimited = "urn:holdfast:problem:rate-limited"
)

// Shed reports whether the operation was refused for want of a store or of room, and for no reason of its own.
func (o *Op) Shed() bool {
	return o.Outcome == Refused && slices.Contains([]string{problemOverloaded, problemUnavailable, problemRateLimited}, o.Problem)
}

// checker has a history sorted for looking things up.
type checker struct {
	h         *History
	found     []Violation
	items     map[string][]Movement            // by version
	keys      map[[2]string][]KeyRow           // by client and key
	effects   map[string][]Movement            // by deduction
	ledger    map[string]Deduction             // by id
	states    map[string]map[int64]stateOfItem // by item and version
	deduction map[[2]string]string             // made under a client's key
}

type stateOfItem struct{ onHand, held int64 }

// CheckOrder checks a history by the versions in it: all operations, every rule.
func CheckOrder(h *History) []Violation {
	c := &checker{
		h: h, items: map[string][]Movement{}, keys: map[[2]string][]KeyRow{}, effects: map[string][]Movement{},
		ledger: map[string]Deduction{}, states: map[string]map[int64]stateOfItem{}, deduction: map[[2]string]string{},
	}
	c.index()
	c.checkMovements()
	c.checkLines()
	c.checkKeys()
	spans := map[string][]span{}
	for i := range h.Ops {
		c.checkOp(&h.Ops[i], spans)
	}
	for sku, of := range spans {
		c.checkRealTime(sku, of)
	}
	c.checkRefusals()
	c.checkExpiry()
	c.checkGate()
	return c.found
}

func (c *checker) fail(rule, format string, args ...any) {
	c.found = append(c.found, Violation{rule, fmt.Sprintf(format, args...)})
}

func (c *checker) index() {
	l := &c.h.Ledger
	for _, m := range l.Movements {
		c.items[m.SKU] = append(c.items[m.SKU], m)
		if m.Deduction != "" {
			c.effects[m.Deduction] = append(c.effects[m.Deduction], m)
		}
	}
	for _, k := range l.Keys {
		c.keys[[2]string{k.Client, k.Key}] = append(c.keys[[2]string{k.Client, k.Key}], k)
		if k.Kind == "deduct" {
			c.deduction[[2]string{k.Client, k.Key}] = k.Deduction
		}
	}
	for _, d := range l.Deductions {
		c.ledger[d.ID] = d
	}
}

// checkMovements: each item's history has no gap, adds up, and is never below nothing.
func (c *checker) checkMovements() {
	for _, item := range c.h.Ledger.Items {
		states := map[int64]stateOfItem{0: {}}
		c.states[item.SKU] = states
		var now stateOfItem
		moves := c.items[item.SKU]
		slices.SortStableFunc(moves, func(a, b Movement) int { return cmp.Compare(a.Version, b.Version) })
		for i, m := range moves {
			if m.Version != int64(i+1) {
				c.fail("versions", "%s: movement %d has version %d", item.SKU, i+1, m.Version)
				break
			}
			now.onHand += m.OnHandBy
			now.held += m.HeldBy
			if now.onHand != m.OnHand || now.held != m.Held {
				c.fail("sums", "%s@%d says %d on hand, %d held; its movements come to %d, %d",
					item.SKU, m.Version, m.OnHand, m.Held, now.onHand, now.held)
			}
			if now.held < 0 || now.onHand < now.held {
				c.fail("negative", "%s@%d has %d on hand, %d held", item.SKU, m.Version, now.onHand, now.held)
			}
			states[m.Version] = now
		}
		if item.Version != int64(len(moves)) || item.OnHand != now.onHand || item.Held != now.held {
			c.fail("sums", "%s is at version %d with %d on hand, %d held; its %d movements come to %d, %d",
				item.SKU, item.Version, item.OnHand, item.Held, len(moves), now.onHand, now.held)
		}
	}
}

// checkLines: a deduction's lines, and what items hold, are what the movements say.
func (c *checker) checkLines() {
	held := map[string]int64{}
	for id, d := range c.ledger {
		moved := map[string]DeductionLine{}
		for _, m := range c.effects[id] {
			l := moved[m.SKU]
			l.Held += m.HeldBy
			switch m.Kind {
			case "deduct", "commit":
				l.Committed -= m.OnHandBy
			case "return":
				l.Returned += m.OnHandBy
			}
			moved[m.SKU] = l
		}
		for _, l := range d.Lines {
			held[l.SKU] += l.Held
			if m := moved[l.SKU]; m.Held != l.Held || m.Committed != l.Committed || m.Returned != l.Returned {
				c.fail("lines", "deduction %s has %+v, its movements come to %+v", id, l, m)
			}
		}
	}
	for _, item := range c.h.Ledger.Items {
		if held[item.SKU] != item.Held {
			c.fail("lines", "%s has %d held, its open holds hold %d", item.SKU, item.Held, held[item.SKU])
		}
	}
	for id := range c.effects {
		if _, ok := c.ledger[id]; !ok {
			c.fail("lines", "movements of a deduction %s that is not there", id)
		}
	}
}

// checkKeys: a key has one effect, and only keys that were sent have one.
func (c *checker) checkKeys() {
	sent := make(map[[2]string]bool, len(c.h.Ops))
	for i := range c.h.Ops {
		sent[[2]string{c.h.Ops[i].Client, c.h.Ops[i].Key}] = true
	}
	for name, rows := range c.keys {
		if len(rows) > 1 {
			c.fail("once", "key %q had %d effects", name, len(rows))
		}
		if !sent[name] {
			c.fail("unasked", "key %q has an effect, and was never sent", name)
		}
	}
}

// span is what one operation has to do with one item: it takes a version of its own, or only sees one.
type span struct {
	call, back time.Duration
	own        int64 // the first version it made; 0: none
	saw        int64 // the last one it knows of
	op         *Op
}

// checkOp compares an operation with what the ledger says of it, and notes its spans.
func (c *checker) checkOp(op *Op, spans map[string][]span) {
	moves, known := c.effectOf(op)
	if op.Deduction != "" && op.Problem == problemNotFound {
		c.fail("acknowledged", "%s is about a deduction that was acknowledged and is not there", describe(op))
	}
	switch {
	case op.Outcome == Done && op.Kind != Read && !known:
		c.fail("acknowledged", "%s is not in the ledger", describe(op))
	case op.Outcome == Refused && known && !op.Doubtful:
		c.fail("refused", "%s was done all the same", describe(op))
	case op.Outcome == Done:
		c.checkAmounts(op, moves)
	}
	back := op.Return
	if op.Outcome != Done { // an earlier sending may have had its effect later than the last answer
		back = never
	}
	made := map[string][2]int64{}
	for _, m := range moves {
		v, ok := made[m.SKU]
		if !ok {
			v[0] = m.Version
		}
		made[m.SKU] = [2]int64{min(v[0], m.Version), max(v[1], m.Version)}
	}
	for sku, v := range made {
		spans[sku] = append(spans[sku], span{op.Call, back, v[0], v[1], op})
	}
	for _, l := range op.Levels {
		state, ok := c.states[l.SKU][l.Version]
		if !ok || state.onHand != l.OnHand || state.held != l.Held {
			c.fail("reported", "%s said %+v; at that version it was %+v", describe(op), l, state)
		}
		spans[l.SKU] = append(spans[l.SKU], span{op.Call, back, 0, l.Version, op})
	}
}

// effectOf finds the movements of an operation, and whether the ledger has it at all.
func (c *checker) effectOf(op *Op) (moves []Movement, known bool) {
	var kind string
	id := op.Deduction
	switch op.Kind {
	case Read:
		return nil, false
	case Extend:
		_, known = c.ledger[id]
		return nil, known && op.Outcome == Done // it leaves no movement
	case Receive, Set:
		for _, k := range c.keys[[2]string{op.Client, op.Key}] {
			if at := int(k.Version) - 1; at >= 0 && at < len(c.items[k.SKU]) {
				moves = append(moves, c.items[k.SKU][at])
			}
			known = true
		}
		return moves, known
	case Deduct, Hold:
		id, known = c.deduction[[2]string{op.Client, op.Key}]
		if op.Outcome == Done && id != op.Deduction {
			known = false
		}
		kind = string(op.Kind)
	case Return:
		_, known = c.keys[[2]string{op.Client, op.Key}]
		kind = "return"
	default: // commit and release are asked for once a deduction
		kind = string(op.Kind)
	}
	for _, m := range c.effects[id] {
		if m.Kind == kind {
			moves = append(moves, m)
		}
	}
	if op.Kind == Commit || op.Kind == Release {
		known = len(moves) > 0
		if op.Kind == Release && op.Outcome == Done && !known {
			known = c.ledger[id].State != "" // it found nothing left to release
		}
	}
	return moves, known
}

// checkAmounts: what was acknowledged moved what was asked for, no more and no less.
func (c *checker) checkAmounts(op *Op, moves []Movement) {
	if op.Kind != Deduct && op.Kind != Hold && op.Kind != Receive && op.Kind != Return {
		return
	}
	by := map[string]int64{}
	for _, m := range moves {
		if op.Kind == Hold {
			by[m.SKU] += m.HeldBy
		} else {
			by[m.SKU] += max(m.OnHandBy, -m.OnHandBy)
		}
	}
	for _, l := range op.Lines {
		if by[l.SKU] != l.Quantity {
			c.fail("amount", "%s moved %d of %s", describe(op), by[l.SKU], l.SKU)
		}
	}
}

// checkRealTime: what was called after something was answered comes after it, and sees it.
func (c *checker) checkRealTime(sku string, spans []span) {
	byBack := slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(byBack, func(a, b span) int { return cmp.Compare(a.back, b.back) })
	var newest span
	next := 0
	for _, s := range spans {
		for ; next < len(byBack) && byBack[next].back < s.call; next++ {
			if byBack[next].saw > newest.saw {
				newest = byBack[next]
			}
		}
		if s.own > 0 && s.own <= newest.saw || s.own == 0 && s.saw < newest.saw {
			c.fail("real time", "%s: %s is at version %d, but was called after version %d was known to %s",
				sku, describe(s.op), max(s.own, s.saw), newest.saw, describe(newest.op))
		}
	}
}

// checkExpiry: a hold is committed while it lives and expires when it is over.
func (c *checker) checkExpiry() {
	for id, d := range c.ledger {
		for _, m := range c.effects[id] {
			at := m.At + m.Ahead
			switch {
			case d.Expires == 0:
			case m.Kind == "commit" && at >= d.Expires:
				c.fail("expiry", "hold %s was committed at %v, over since %v", id, at, d.Expires)
			case m.Kind == "expire" && at+expirySlack < d.Expires:
				c.fail("expiry", "hold %s expired at %v, before %v", id, at, d.Expires)
			}
		}
	}
}

// checkGate: what the gate has of an item was so at that version.
func (c *checker) checkGate() {
	for _, b := range c.h.Gate {
		state, ok := c.states[b.SKU][b.Version]
		if available := state.onHand - state.held; !ok || available != b.Available {
			c.fail("gate", "it has %+v; at that version %d were available", b, available)
		}
	}
}

// validity is when an item may have been at a version, and what was available then.
type validity struct {
	from, to  time.Duration
	available int64
}

// checkRefusals: whoever was told that too little is left could have been told so by the ledger, a second ago at most, if the units
// that requests under way wanted were gone.
func (c *checker) checkRefusals() {
	wanted := c.demand()
	valid := map[string][]validity{}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		for _, s := range op.Short {
			if s.Requested <= s.Available {
				c.fail("refusal", "%s: %+v is not short", describe(op), s)
			}
			if valid[s.SKU] == nil {
				valid[s.SKU] = c.validity(s.SKU)
			}
			from, to := op.Call-freshness, op.Return
			least := leastAvailable(valid[s.SKU], from, to)
			// The request itself is among those that want something.
			if under := wanted[s.SKU].during(from, to) - s.Requested; least-under >= s.Requested {
				c.fail("refusal", "%s: %+v, while at least %d were available and requests under way wanted %d", describe(op), s, least, under)
			}
		}
	}
}

// validity of an item's versions, in order. The times at which one was replaced are bounds: the ledger's clock before the commit, an
// answer after it.
func (c *checker) validity(sku string) []validity {
	moves := c.items[sku]
	list := make([]validity, len(moves)+1)
	known := make([]time.Duration, len(moves)+2) // when each version was surely there
	for i := range known {
		known[i] = never
	}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Outcome == Unknown {
			continue
		}
		for _, l := range op.Levels {
			if l.SKU == sku && l.Version >= 0 && l.Version < int64(len(known)) {
				known[l.Version] = min(known[l.Version], op.Return)
			}
		}
	}
	for v := len(known) - 2; v >= 0; v-- {
		known[v] = min(known[v], known[v+1])
	}
	var onHand, held int64
	var from time.Duration = math.MinInt64
	for v := range list {
		if v > 0 {
			m := moves[v-1]
			onHand, held, from = onHand+m.OnHandBy, held+m.HeldBy, max(from, m.At)
		}
		list[v] = validity{from, known[v+1], onHand - held}
	}
	return list
}

// leastAvailable over all versions that may have been there in a time.
func leastAvailable(list []validity, from, to time.Duration) int64 {
	first := sort.Search(len(list), func(i int) bool { return list[i].to >= from })
	least := int64(math.MaxInt64)
	for i := first; i < len(list) && list[i].from <= to; i++ {
		least = min(least, list[i].available)
	}
	return least
}

// demand is what requests want of an item, over time: sums of what began and of what ended before.
type demand struct {
	starts, ends []point
}

type point struct {
	at  time.Duration
	sum int64
}

func (c *checker) demand() map[string]*demand {
	all := map[string]*demand{}
	linger := cmp.Or(c.h.Linger, defaultWait)
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Kind != Deduct && op.Kind != Hold {
			continue
		}
		end := op.Return + linger
		if op.Outcome == Unknown || op.Doubtful {
			end = max(op.Return, op.Call) + TicketLife + linger
		}
		for _, l := range op.Lines {
			d := all[l.SKU]
			if d == nil {
				d = new(demand)
				all[l.SKU] = d
			}
			d.starts = append(d.starts, point{op.Call, l.Quantity})
			d.ends = append(d.ends, point{end, l.Quantity})
		}
	}
	for _, d := range all {
		accumulate(d.starts)
		accumulate(d.ends)
	}
	return all
}

func accumulate(points []point) {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(points); i++ {
		points[i].sum += points[i-1].sum
	}
}

// during is what was wanted by requests that were under way at some time between from and to.
func (d *demand) during(from, to time.Duration) int64 {
	if d == nil {
		return 0
	}
	return before(d.starts, to+1) - before(d.ends, from)
}

func before(points []point, at time.Duration) int64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].at >= at })
	if i == 0 {
		return 0
	}
	return points[i-1].sum
}

func describe(op *Op) string {
	return fmt.Sprintf("%s %s by %s (key %q, deduction %s, %v–%v, %s)", op.Kind, lines(op.Lines), op.Client, op.Key, op.Deduction, op.Call, op.Return, op.Outcome)
}

func lines(list []Line) string {
	var text strings.Builder
	for _, l := range list {
		fmt.Fprintf(&text, "%s×%d ", l.SKU, l.Quantity)
	}
	return text.String()
}
