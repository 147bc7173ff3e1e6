package ledger

import (
	"time"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// extend moves a hold's expiry.
type extend struct {
	onDeduction
	hold      time.Duration
	reacquire bool
}

func (o *extend) order() orderPart { return orderPart{o.client, o.rows[0].OrderID, o.rows[0].Part} }

func (o *extend) names() names {
	if !o.reacquire {
		return names{deductions: o.rows}
	}
	return names{deductions: o.rows, order: o.order(), counts: true}
}

func (o *extend) decide(v *view) result {
	d := v.deductions[o.id]
	now := v.asOfNow(d)
	over := now.State == stock.Expired
	switch {
	case over && !o.reacquire:
		return refuse(&stock.ExpiredError{Deduction: now})
	case now.State != stock.Held && !over:
		return refuse(&stock.StateError{Deduction: now})
	}
	if err := o.withinLife(v, d); err != nil {
		return refuse(err)
	}
	g := guardLive
	if over {
		if err := o.takeAnew(v, d); err != nil {
			return refuse(err)
		}
		g = noGuard
	}
	v.update(d, g, o.hold)
	return v.answer(d, o.hold)
}

// withinLife bounds a hold's whole life. The ledger's clock is known only in a fresh view; before that this
// process's own will do for a bound of days.
func (o *extend) withinLife(v *view, d *deductionRow) error {
	now := v.now
	if now.IsZero() {
		now = time.Now()
	}
	if now.Add(o.hold).After(d.CreatedAt.Add(stock.MaxHoldLife)) {
		return stock.InvalidField("/hold_seconds", "would keep the hold for longer than a hold may live in all")
	}
	return nil
}

// takeAnew makes an expired hold a hold again, if its order has not been deducted otherwise and the units
// are there. One that was not swept yet expires first, so that its history says what happened.
func (o *extend) takeAnew(v *view, d *deductionRow) error {
	if id, ok := v.live[o.order()]; ok && id != d.ID {
		return &stock.OrderError{ID: id}
	}
	rows, wants := make([]*itemRow, len(d.Lines)), make([]want, len(d.Lines))
	for i := range d.Lines {
		l := &d.Lines[i]
		rows[i] = v.items[l.Item]
		wants[i] = want{quantity: l.Granted() - l.Committed, from: rows[i : i+1]}
	}
	swept := d.State == stock.Expired
	if swept {
		if err := v.withinLimit(d.Customer, d.CustomerLimit, wants); err != nil {
			return err
		}
		portions := allot(wants)
		if missing, _ := settled(portions); missing > 0 {
			return shortage(wants, portions)
		}
	}
	for i := range d.Lines {
		l := &d.Lines[i]
		if l.Held > 0 {
			v.moveFor(&d.Deduction, rows[i], stock.Movement{Kind: stock.Expire, DeltaHeld: -l.Held, Actor: systemActor})
		}
		if swept {
			l.Held = l.Granted() - l.Committed
		}
		if l.Held > 0 {
			v.moveFor(&d.Deduction, rows[i], stock.Movement{Kind: stock.Hold, DeltaHeld: l.Held, Actor: o.client})
			v.updateLine(d, l)
		}
	}
	d.State = stock.Held
	v.occupy(&d.Deduction)
	return nil
}
