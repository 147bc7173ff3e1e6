package ledger

import (
	"context"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// possession is what a customer may have units of.
type possession struct {
	customer stock.Customer
	item     stock.Item
}

// unitsRow is what a customer has of an item as the batch has it so far.
type unitsRow struct {
	units   stock.Quantity
	changed bool
}

// moveFor moves units of a deduction. What its customer has changes with every movement and with nothing else: so the
// item's version, which each movement raises and the write checks, proves his figure as well.
func (v *view) moveFor(d *stock.Deduction, row *itemRow, m stock.Movement) {
	m.Deduction = &d.ID
	v.move(row, m)
	if units := m.DeltaHeld - m.DeltaOnHand; units != 0 && d.Customer != (stock.Customer{}) {
		u := v.units[possession{d.Customer, row.levels.Item}]
		u.units += units
		u.changed = true
	}
}

// unitsOf a customer; 0 unless they were read.
func (v *view) unitsOf(c stock.Customer, row *itemRow) stock.Quantity {
	if u := v.units[possession{c, row.levels.Item}]; u != nil {
		return u.units
	}
	return 0
}

// withinLimit checks that a customer would not have more of an item than limit. It goes by what is asked for, whatever is
// there, of the first item of each line: one with a limit has no other.
func (v *view) withinLimit(c stock.Customer, limit stock.Quantity, wants []want) error {
	if limit == 0 {
		return nil
	}
	for i := range wants {
		wants[i].from[0].wanted += wants[i].quantity
	}
	var over []stock.LimitLine
	for i := range wants {
		row := wants[i].from[0]
		if has := v.unitsOf(c, row); has+row.wanted > limit {
			over = append(over, stock.LimitLine{Line: i, Item: row.levels.Item, Requested: row.wanted, Has: has, Limit: limit})
		}
	}
	for i := range wants {
		wants[i].from[0].wanted = 0
	}
	if over != nil {
		return &stock.LimitError{Lines: over}
	}
	return nil
}

// possessions are what the operation is about changing, of the items it touches.
func (n *names) possessions(items []stock.Item) []possession {
	var all []possession
	if n.customer != (stock.Customer{}) {
		for _, item := range items {
			all = append(all, possession{n.customer, item})
		}
	}
	for _, d := range n.deductions {
		if !n.counts || d.Customer == (stock.Customer{}) {
			continue
		}
		for i := range d.Lines {
			all = append(all, possession{d.Customer, d.Lines[i].Item})
		}
	}
	return all
}

// counts reports whether a request may change what a customer has.
func (r *request) counts() bool {
	n := r.op.names()
	return len(n.possessions(r.items)) > 0
}

// counted tells whoever listens what the customers of a batch have.
func (l *Ledger) counted(v *view, epoch uint32) {
	if l.cfg.Counted != nil && len(v.units) > 0 {
		l.cfg.Counted(v.possessed(epoch))
	}
}

// possessed is what customers have, of items that exist.
func (v *view) possessed(epoch uint32) []stock.CustomerUnits {
	all := make([]stock.CustomerUnits, 0, len(v.units))
	for p, u := range v.units {
		if row := v.items[p.item]; row != nil {
			all = append(all, stock.CustomerUnits{
				Customer: p.customer, Item: p.item, Units: u.units, Version: row.levels.Version, Epoch: epoch,
			})
		}
	}
	return all
}

// Units reads what customers have of the items named with them, as it is committed now; items that do not exist are
// missing. The item's version is read first, so what they have is not older than it says.
func (l *Ledger) Units(ctx context.Context, of []stock.CustomerUnits) ([]stock.CustomerUnits, error) {
	v := newView(len(of), new(dbsqlc.WriteBatchParams))
	items, about := make([]stock.Item, len(of)), make([]possession, len(of))
	for i := range of {
		items[i], about[i] = of[i].Item, possession{of[i].Customer, of[i].Item}
	}
	epoch, err := l.reads.ReadEpoch(ctx)
	if err == nil {
		err = readItems(ctx, l.reads, v, items, justRead)
	}
	if err == nil {
		err = readUnits(ctx, l.reads, v, about)
	}
	if err != nil {
		return nil, readError(err)
	}
	return v.possessed(uint32(epoch)), nil
}
