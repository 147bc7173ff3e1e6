package ledger

import (
	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// deduct takes or holds all lines of an order, or none.
type deduct struct {
	*stock.DeductRequest
	id          uuid.UUID // of the deduction it makes, the same however often the batch is sent
	number      int64     // the same, unless the ledger has it already
	fingerprint stock.Fingerprint
	items       []stock.Item
}

func newDeduct(r *stock.DeductRequest, id uuid.UUID) *deduct {
	op := &deduct{DeductRequest: r, id: id, fingerprint: r.Fingerprint(), items: make([]stock.Item, len(r.Lines))}
	for i := range r.Lines {
		op.items[i] = r.Lines[i].Item
	}
	return op
}

func (o *deduct) touches() []stock.Item { return o.items }

func (o *deduct) names() names {
	return names{key: o.Keyed, order: orderPart{o.Client, o.OrderID, o.Part}}
}

func (o *deduct) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok {
		return replayed(op, o.fingerprint)
	}
	if id, ok := v.live[orderPart{o.Client, o.OrderID, o.Part}]; ok {
		return refuse(&stock.OrderError{ID: id})
	}
	rows, err := o.rows(v)
	if err != nil {
		return refuse(err)
	}
	d := &deductionRow{stock.Deduction{
		ID: o.id, Number: o.number, Client: o.Client, OrderID: o.OrderID, Part: o.Part, State: stock.Committed, Revision: 1,
		Lines: make([]stock.Line, len(o.Lines)),
	}}
	if o.Hold > 0 {
		d.State = stock.Held
	}
	for i := range o.Lines {
		d.Lines[i] = o.take(v, rows[i], i)
	}
	v.record(o.Keyed, operationRow{fingerprint: o.fingerprint, kind: stock.DeductOperation, deduction: o.id})
	v.create(&d.Deduction, o.Hold, rows)
	return v.answer(d, o.Hold)
}

// rows finds the item of each line and checks that all lines together fit.
func (o *deduct) rows(v *view) ([]*itemRow, error) {
	rows := make([]*itemRow, len(o.Lines))
	var unknown []stock.UnknownLine
	for i := range o.Lines {
		if rows[i] = v.items[o.items[i]]; rows[i] == nil {
			unknown = append(unknown, stock.UnknownLine{Line: i, Item: o.items[i]})
		}
	}
	if unknown != nil {
		return nil, &stock.UnknownItemError{Lines: unknown}
	}
	return rows, fits(rows, func(i int) stock.Quantity { return o.Lines[i].Quantity })
}

// fits checks that what all lines want, summed by item, is available; if not, every line of a short item is
// in the [stock.ShortError].
func fits(rows []*itemRow, wanted func(line int) stock.Quantity) error {
	for i, row := range rows {
		row.wanted += wanted(i)
	}
	var short []stock.ShortLine
	for i, row := range rows {
		if available := row.levels.Available(); row.wanted > available {
			short = append(short, stock.ShortLine{
				Line: i, Item: row.levels.Item, Requested: row.wanted, Available: available, Version: row.levels.Version,
			})
		}
	}
	for _, row := range rows {
		row.wanted = 0
	}
	if short != nil {
		return &stock.ShortError{Lines: short}
	}
	return nil
}

// take moves one line's units.
func (o *deduct) take(v *view, row *itemRow, i int) stock.Line {
	l := &o.Lines[i]
	line := stock.Line{No: i + 1, LineID: l.LineID, Item: l.Item, Quantity: l.Quantity}
	m := stock.Movement{Actor: o.Client, Deduction: &o.id}
	if o.Hold > 0 {
		line.Held = l.Quantity
		m.Kind, m.DeltaHeld = stock.Hold, l.Quantity
	} else {
		line.Committed = l.Quantity
		m.Kind, m.DeltaOnHand = stock.Deducted, -l.Quantity
	}
	v.move(row, m)
	return line
}

// recall asks only whether a deduction has been made before, without trying to make it.
type recall struct{ *deduct }

func (recall) touches() []stock.Item { return nil }

func (o recall) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok {
		return replayed(op, o.fingerprint)
	}
	if id, ok := v.live[orderPart{o.Client, o.OrderID, o.Part}]; ok {
		return refuse(&stock.OrderError{ID: id})
	}
	return result{certain: true}
}
