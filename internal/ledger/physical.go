package ledger

import (
	"strconv"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// giveIn books goods that came back.
type giveIn struct {
	onDeduction
	*stock.ReturnRequest
	fingerprint stock.Fingerprint
}

func (o *giveIn) names() names { return names{deductions: o.rows, key: o.Keyed, counts: true} }

func (o *giveIn) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok {
		return replayed(op, o.fingerprint)
	}
	d := v.deductions[o.id]
	back, err := o.quantities(d)
	if err != nil {
		return refuse(err)
	}
	if err := o.possible(v, d, back); err != nil {
		return refuse(err)
	}
	for i := range d.Lines {
		l := &d.Lines[i]
		if back[i] > 0 {
			v.moveFor(&d.Deduction, v.items[l.Item], stock.Movement{
				Kind: stock.Return, DeltaOnHand: back[i], Reason: o.Reason, Actor: o.client,
			})
			l.Returned += back[i]
			v.updateLine(d, l)
		}
	}
	g := noGuard
	switch {
	case d.State == stock.Committed:
		d.State = ended(d.Lines, d.State)
	case d.State == stock.Held && !v.due(d):
		g = guardLive // the answer says that the rest is still held
	}
	v.update(d, g, 0)
	if o.Key != "" { // else it is one of several that share a key
		v.record(o.Keyed, operationRow{fingerprint: o.fingerprint, kind: stock.ReturnOperation, deduction: d.ID, version: int64(d.Revision)})
	}
	return v.answer(d, 0)
}

func (o *giveIn) quantities(d *deductionRow) ([]stock.Quantity, error) {
	if len(o.Lines) > 0 {
		return perLine(d, o.Lines, outside)
	}
	back := make([]stock.Quantity, len(d.Lines))
	for i := range d.Lines {
		back[i] = outside(&d.Lines[i])
	}
	return back, nil
}

// outside is what of a line may come back.
func outside(l *stock.Line) stock.Quantity { return l.Committed - l.Returned }

// possible checks that something comes back, never more than was taken, and that the shelf can hold it.
func (o *giveIn) possible(v *view, d *deductionRow, back []stock.Quantity) error {
	taken, total := false, stock.Quantity(0)
	for i := range d.Lines {
		l := &d.Lines[i]
		taken, total = taken || l.Committed > 0, total+back[i]
		v.items[l.Item].wanted += back[i]
	}
	overfull := false
	for i := range d.Lines {
		row := v.items[d.Lines[i].Item]
		overfull = overfull || row.levels.OnHand+row.wanted > stock.MaxOnHand
	}
	for i := range d.Lines {
		v.items[d.Lines[i].Item].wanted = 0
	}
	if overfull {
		return stock.InvalidField("/lines", "would put more on hand than an item can have")
	}
	excess := o.excess(d, back)
	switch {
	case !taken:
		return &stock.StateError{Deduction: v.asOfNow(d)}
	case excess != nil:
		return &stock.ReturnError{Lines: excess}
	case total == 0:
		return &stock.StateError{Deduction: v.asOfNow(d)}
	}
	return nil
}

// excess lists the named lines of which less is outside than would come back.
func (o *giveIn) excess(d *deductionRow, back []stock.Quantity) []stock.ExcessLine {
	var excess []stock.ExcessLine
	for n := range o.Lines {
		first, last := findLine(d, o.Lines[n])
		if back[last] <= outside(&d.Lines[last]) { // where what is too much would be
			continue
		}
		e := stock.ExcessLine{Line: n}
		for at := first; at <= last; at++ {
			e.Requested += back[at]
			e.Possible += outside(&d.Lines[at])
		}
		excess = append(excess, e)
	}
	return excess
}

// adjust changes what is physically there.
type adjust struct {
	*stock.AdjustRequest
	fingerprint stock.Fingerprint
}

func newAdjust(r *stock.AdjustRequest) *adjust {
	return &adjust{AdjustRequest: r, fingerprint: r.Fingerprint()}
}

func (o *adjust) touches() []stock.Item { return []stock.Item{o.Item} }
func (o *adjust) names() names          { return names{key: o.Keyed} }

func (o *adjust) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok {
		return replayed(op, o.fingerprint)
	}
	row := v.items[o.Item]
	if row == nil {
		return refuse(&stock.UnknownItemError{Lines: []stock.UnknownLine{{Item: o.Item}}})
	}
	if err := o.precondition(row.levels); err != nil {
		return refuse(err)
	}
	return o.apply(v, row, o.Keyed)
}

// apply moves the item, once under the key.
func (o *adjust) apply(v *view, row *itemRow, once stock.Keyed) result {
	delta, err := o.delta(row.levels)
	if err != nil {
		return refuse(err)
	}
	m := stock.Movement{Kind: o.Kind, DeltaOnHand: delta, Reason: o.Reason, Reference: o.Reference, Actor: o.Client}
	v.move(row, m)
	m.Version, m.OnHand, m.Held = row.levels.Version, row.levels.OnHand, row.levels.Held
	v.record(once, operationRow{fingerprint: o.fingerprint, kind: stock.AdjustOperation, item: row.id, name: o.Item, version: m.Version})
	return result{adjustment: &stock.Adjustment{Movement: m, Levels: row.levels}}
}

func (o *adjust) precondition(l stock.Levels) error {
	switch {
	case o.IfVersion != nil && *o.IfVersion != l.Version,
		o.ExpectedOnHand != nil && *o.ExpectedOnHand != l.OnHand:
		return &stock.PreconditionError{Reason: stock.ErrPreconditionFailed, Levels: l}
	case o.SetTo != nil && o.IfVersion == nil && o.ExpectedOnHand == nil && !o.Overwrite:
		return &stock.PreconditionError{Reason: stock.ErrPreconditionRequired, Levels: l}
	}
	return nil
}

// delta is by how much on_hand changes: it may not fall below what is held, nor pass what an item can have.
func (o *adjust) delta(l stock.Levels) (stock.Quantity, error) {
	delta, at := o.Delta, "/delta"
	if o.SetTo != nil {
		delta, at = min(max(*o.SetTo, -1), stock.MaxOnHand+1)-l.OnHand, "/set_to"
	}
	// What is out of range stays so when it is cut to this, and no sum overflows.
	delta = min(max(delta, -stock.MaxOnHand-1), stock.MaxOnHand+1)
	switch after := l.OnHand + delta; {
	case after > stock.MaxOnHand:
		return 0, stock.InvalidField(at, "would put more on hand than an item can have")
	case after < l.Held:
		return 0, &stock.ShortError{Lines: []stock.ShortLine{{
			Item: l.Item, Requested: -delta, Available: l.OnHand - l.Held, Version: l.Version,
		}}}
	}
	return delta, nil
}

// pointer is the JSON pointer of a list's element.
func pointer(list string, index int) string { return list + "/" + strconv.Itoa(index) }
