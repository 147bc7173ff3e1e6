package ledger

import (
	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// deduct takes or holds all lines of an order, or none; or, if it may be partial, of each line what there is.
type deduct struct {
	*stock.DeductRequest
	id          uuid.UUID // of the deduction it makes, the same however often the batch is sent
	number      int64     // the same, unless the ledger has it already
	fingerprint stock.Fingerprint
	items       []stock.Item // that each line may be taken from, line by line
}

func newDeduct(r *stock.DeductRequest, id uuid.UUID) *deduct {
	op := &deduct{DeductRequest: r, id: id, fingerprint: r.Fingerprint(), items: make([]stock.Item, 0, len(r.Lines))}
	for i := range r.Lines {
		op.items = r.Lines[i].AppendItems(op.items)
	}
	return op
}

func (o *deduct) touches() []stock.Item { return o.items }

func (o *deduct) names() names {
	return names{key: o.Keyed, order: orderPart{o.Client, o.OrderID, o.Part}, customer: o.For()}
}

func (o *deduct) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok {
		return replayed(op, o.fingerprint)
	}
	if id, ok := v.live[orderPart{o.Client, o.OrderID, o.Part}]; ok {
		return refuse(&stock.OrderError{ID: id})
	}
	portions, err := o.portions(v)
	if err != nil {
		return refuse(err)
	}
	d := &deductionRow{stock.Deduction{
		ID: o.id, Number: o.number, Client: o.Client, OrderID: o.OrderID, Part: o.Part, State: stock.Committed, Revision: 1,
		Customer: o.For(), CustomerLimit: o.CustomerLimit, Lines: make([]stock.Line, len(portions)),
	}}
	if o.Hold > 0 {
		d.State = stock.Held
	}
	for i := range portions {
		d.Lines[i] = o.take(v, &d.Deduction, &portions[i])
		d.Lines[i].No = i + 1
	}
	v.record(o.Keyed, operationRow{fingerprint: o.fingerprint, kind: stock.DeductOperation, deduction: o.id})
	v.create(&d.Deduction, o.Hold, portions)
	return v.answer(d, o.Hold)
}

// portions says what each line takes, or why the order is refused. What rests on an item that is short, or on another
// location having been short, needs rows just read, as a refusal does.
func (o *deduct) portions(v *view) ([]portion, error) {
	wants, err := o.wants(v)
	if err != nil {
		return nil, err
	}
	if err := v.withinLimit(o.For(), o.CustomerLimit, wants); err != nil {
		return nil, err
	}
	portions := allot(wants)
	missing, anything := settled(portions)
	switch {
	case missing > 0 && !(o.AllowPartial && anything && v.proves()):
		return nil, shortage(wants, portions)
	case !v.proves() && !firstChoices(wants, portions):
		return nil, stock.ErrInsufficientStock // somewhere, as far as is known
	}
	return portions, nil
}

// firstChoices reports whether each line is taken from the location it prefers.
func firstChoices(wants []want, portions []portion) bool {
	for i := range portions {
		if p := &portions[i]; p.row != wants[p.line].from[0] {
			return false
		}
	}
	return true
}

// wants finds the items of each line: one that may be taken from several locations needs one that exists.
func (o *deduct) wants(v *view) ([]want, error) {
	wants, rows := make([]want, len(o.Lines)), make([]*itemRow, 0, len(o.items))
	var unknown []stock.UnknownLine
	at := 0
	for i := range o.Lines {
		l := &o.Lines[i]
		places, first := 1, len(rows)
		if l.Sourcing != nil {
			places = l.Sourcing.Places()
		}
		for _, item := range o.items[at : at+places] {
			if row := v.items[item]; row != nil {
				rows = append(rows, row)
			}
		}
		at += places
		if len(rows) == first {
			unknown = append(unknown, stock.UnknownLine{Line: i, Item: l.Item})
		}
		wants[i] = want{quantity: l.Quantity, from: rows[first:], split: l.Sourcing != nil && l.Sourcing.Split}
	}
	if unknown != nil {
		return nil, &stock.UnknownItemError{Lines: unknown}
	}
	return wants, nil
}

// take moves the units of one portion, if there are any, and makes its line.
func (o *deduct) take(v *view, d *stock.Deduction, p *portion) stock.Line {
	l := &o.Lines[p.line]
	line := stock.Line{
		RequestLine: p.line + 1, LineID: l.LineID, Item: p.row.levels.Item, Quantity: p.quantity + p.missing, Missing: p.missing,
	}
	m := stock.Movement{Actor: o.Client}
	if o.Hold > 0 {
		line.Held = p.quantity
		m.Kind, m.DeltaHeld = stock.Hold, p.quantity
	} else {
		line.Committed = p.quantity
		m.Kind, m.DeltaOnHand = stock.Deducted, -p.quantity
	}
	if p.quantity != 0 {
		v.moveFor(d, p.row, m)
	}
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
