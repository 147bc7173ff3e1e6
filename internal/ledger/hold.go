package ledger

import (
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// systemActor is who a movement names when nobody asked for it: a hold that expired.
const systemActor = "holdfast"

// nobody scopes keys that no client chose; a client has a name.
const nobody = ""

// onDeduction is the part that operations on an existing deduction share.
type onDeduction struct {
	client string
	id     uuid.UUID
	items  []stock.Item
	rows   []*deductionRow // one, as it was read before the operation was queued
}

func newOnDeduction(client string, d *stock.Deduction) onDeduction {
	o := onDeduction{client: client, id: d.ID, items: make([]stock.Item, len(d.Lines)), rows: []*deductionRow{{*d}}}
	for i := range d.Lines {
		o.items[i] = d.Lines[i].Item
	}
	return o
}

func (o *onDeduction) touches() []stock.Item { return o.items }
func (o *onDeduction) names() names          { return names{deductions: o.rows, counts: true} }

// commit takes what a deduction holds.
type commit struct {
	onDeduction
	*stock.CommitRequest
	fingerprint stock.Fingerprint
}

// newCommit gives a commit of named quantities that has no key one of its own: it is the last commit of its
// deduction, but after others that kept the rest the state does not tell a retry from another request.
func newCommit(on onDeduction, r *stock.CommitRequest) *commit {
	o := &commit{onDeduction: on, CommitRequest: r, fingerprint: r.Fingerprint()}
	if r.Key == "" && len(r.Lines) > 0 {
		last := *r
		last.Keyed = stock.Keyed{Client: nobody, Key: "commit " + r.ID.String()}
		o.CommitRequest = &last
	}
	return o
}

// names of a commit of everything: customers have as much before as after.
func (o *commit) names() names {
	return names{deductions: o.rows, key: o.Keyed, counts: len(o.Lines) > 0}
}

func (o *commit) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok && o.Key != "" && (o.Client != nobody || op.fingerprint == o.fingerprint) {
		return replayed(op, o.fingerprint)
	}
	d := v.deductions[o.id]
	take, err := o.quantities(d)
	now := v.asOfNow(d)
	if defect.On(defect.CommitIgnoresExpiry) {
		now = d.Deduction
	}
	switch {
	case now.State == stock.Expired:
		return refuse(&stock.ExpiredError{Deduction: now})
	case now.State == stock.Committed || now.State == stock.Returned:
		if err == nil && !o.KeepRest && committedAsAsked(d, take) {
			return v.unchanged(d)
		}
		return refuse(&stock.StateError{Deduction: now})
	case now.State != stock.Held:
		return refuse(&stock.StateError{Deduction: now})
	case err != nil:
		return refuse(err)
	}
	if err := o.withinHeld(d, take); err != nil {
		return refuse(err)
	}
	o.apply(v, d, take)
	return v.answer(d, 0)
}

// quantities says how much of each line is to be taken; nil: whatever is held. Of a deduction that was committed before
// it is what would have been taken, for a retry to be known.
func (o *commit) quantities(d *deductionRow) ([]stock.Quantity, error) {
	if len(o.Lines) == 0 {
		return nil, nil
	}
	room := func(l *stock.Line) stock.Quantity { return l.Held }
	if d.State != stock.Held {
		room = func(l *stock.Line) stock.Quantity { return l.Granted() }
	}
	return perLine(d, o.Lines, room)
}

func (o *commit) apply(v *view, d *deductionRow, take []stock.Quantity) {
	d.State = stock.Committed
	for i := range d.Lines {
		l, row := &d.Lines[i], v.items[d.Lines[i].Item]
		if l.Held == 0 {
			continue
		}
		taken := l.Held
		if take != nil {
			taken = take[i]
		}
		rest := l.Held - taken
		if taken > 0 {
			v.moveFor(&d.Deduction, row, stock.Movement{Kind: stock.Commit, DeltaOnHand: -taken, DeltaHeld: -taken, Actor: o.client})
		}
		if rest > 0 && o.KeepRest {
			d.State = stock.Held
		} else if rest > 0 {
			v.moveFor(&d.Deduction, row, stock.Movement{Kind: stock.Release, DeltaHeld: -rest, Actor: o.client})
			rest = 0
		}
		l.Held, l.Committed = rest, l.Committed+taken
		v.updateLine(d, l)
	}
	g := guardLive
	if defect.On(defect.CommitIgnoresExpiry) {
		g = noGuard
	}
	v.update(d, g, 0)
	if o.Key != "" {
		v.record(o.Keyed, operationRow{fingerprint: o.fingerprint, kind: stock.CommitOperation, deduction: d.ID, version: int64(d.Revision)})
	}
}

// committedAsAsked reports whether a commit that finds the deduction committed asked for just that, and so
// is the retry of the one that did it.
func committedAsAsked(d *deductionRow, take []stock.Quantity) bool {
	for i := range d.Lines {
		want := d.Lines[i].Granted()
		if take != nil {
			want = take[i]
		}
		if d.Lines[i].Committed != want {
			return false
		}
	}
	return true
}

// withinHeld checks that no line is to be committed beyond what it holds; every place that names such a line is told.
func (o *commit) withinHeld(d *deductionRow, take []stock.Quantity) error {
	var wrong []stock.Field
	for i, named := range o.Lines {
		if _, at := findLine(d, named); take[at] > d.Lines[at].Held {
			wrong = append(wrong, stock.Field{Pointer: pointer("/lines", i) + "/quantity", Detail: "asks for more of the line than it holds"})
		}
	}
	if wrong != nil {
		return &stock.FieldError{Fields: wrong}
	}
	return nil
}

// perLine maps named quantities to the lines of a deduction: by number, or by the caller's line id, which names all
// lines that one line of the request was split into. Those are filled in order, each as far as it has room; what is too
// much is put on the last. Quantities of one line are summed.
func perLine(d *deductionRow, named []stock.LineQuantity, room func(*stock.Line) stock.Quantity) ([]stock.Quantity, error) {
	take := make([]stock.Quantity, len(d.Lines))
	var wrong []stock.Field
	for i, n := range named {
		first, last := findLine(d, n)
		if first < 0 {
			wrong = append(wrong, stock.Field{Pointer: pointer("/lines", i), Detail: "names a line that the deduction does not have"})
			continue
		}
		left := n.Quantity
		for at := first; at < last; at++ {
			part := min(left, max(room(&d.Lines[at])-take[at], 0))
			take[at] += part
			left -= part
		}
		take[last] += left
	}
	if wrong != nil {
		return nil, &stock.FieldError{Fields: wrong}
	}
	return take, nil
}

// findLine is the first and the last of the lines that are named, or -1.
func findLine(d *deductionRow, n stock.LineQuantity) (first, last int) {
	if n.No > 0 {
		if n.No > len(d.Lines) {
			return -1, -1
		}
		return n.No - 1, n.No - 1
	}
	first = slices.IndexFunc(d.Lines, func(l stock.Line) bool { return l.LineID == n.LineID })
	if first < 0 {
		return -1, -1
	}
	last = first
	for last+1 < len(d.Lines) && d.Lines[last+1].LineID == n.LineID {
		last++
	}
	return first, last
}

// release gives back what a deduction holds.
type release struct{ onDeduction }

func (o *release) decide(v *view) result {
	d := v.deductions[o.id]
	switch d.State {
	case stock.Held:
		if v.due(d) {
			giveBack(v, d, stock.Expire, systemActor, guardDue)
		} else {
			giveBack(v, d, stock.Release, o.client, guardLive)
		}
		return v.answer(d, 0)
	case stock.Released, stock.Expired:
		return v.unchanged(d)
	}
	if gaveBack(d) {
		return v.unchanged(d)
	}
	return refuse(&stock.StateError{Deduction: d.Deduction})
}

// gaveBack reports whether a deduction that ended as committed had units released on the way, so that a
// release is the retry of one that was done.
func gaveBack(d *deductionRow) bool {
	for i := range d.Lines {
		if d.Lines[i].Released() > 0 {
			return true
		}
	}
	return false
}

// giveBack ends a hold: what it still holds is available again. A hold of which a part was committed ends as
// committed.
func giveBack(v *view, d *deductionRow, kind stock.MovementKind, actor string, g guard) {
	for i := range d.Lines {
		l := &d.Lines[i]
		if l.Held == 0 {
			continue
		}
		v.moveFor(&d.Deduction, v.items[l.Item], stock.Movement{Kind: kind, DeltaHeld: -l.Held, Actor: actor})
		l.Held = 0
		v.updateLine(d, l)
	}
	if kind == stock.Expire {
		d.State = ended(d.Lines, stock.Expired)
	} else {
		d.State = ended(d.Lines, stock.Released)
	}
	v.update(d, g, 0)
}

// ended is the state of a deduction that holds nothing any more: it depends on what was committed of it, and
// what of that came back; if nothing was, it is untaken.
func ended(lines []stock.Line, untaken stock.State) stock.State {
	state := untaken
	for i := range lines {
		switch l := &lines[i]; {
		case l.Committed > l.Returned:
			return stock.Committed
		case l.Committed > 0:
			state = stock.Returned
		}
	}
	return state
}

// expire ends a hold whose time is over; one that is not, or no longer, held is left alone.
type expire struct {
	onDeduction
	fence stock.Fence // zero: whoever needs the units releases them
}

func (o *expire) names() names {
	return names{deductions: o.rows, counts: true, fence: o.fence}
}

func (o *expire) decide(v *view) result {
	if err := v.stale(o.fence); err != nil {
		return refuse(err)
	}
	d := v.deductions[o.id]
	if defect.On(defect.SweepWithoutGuard) {
		giveBack(v, o.rows[0].clone(), stock.Expire, systemActor, guardDue)
		return v.answer(d, 0)
	}
	if d.State != stock.Held || v.fresh && !v.due(d) {
		return v.unchanged(d)
	}
	giveBack(v, d, stock.Expire, systemActor, guardDue)
	return v.answer(d, 0)
}
