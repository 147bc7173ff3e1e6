package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// onOrder is an operation on several deductions of one order, all of them or none. Each is decided as if it came alone.
type onOrder struct {
	*stock.OrderRequest
	each  []operation // one a deduction
	items []stock.Item
	rows  []*deductionRow
}

func newOnOrder(r *stock.OrderRequest, rows []*deductionRow, make func(onDeduction) operation) *onOrder {
	o := &onOrder{OrderRequest: r}
	for _, row := range rows {
		on := newOnDeduction(r.Client, &row.Deduction)
		o.each = append(o.each, make(on))
		o.items = append(o.items, on.items...)
		o.rows = append(o.rows, on.rows...)
	}
	return o
}

func (o *onOrder) touches() []stock.Item { return o.items }
func (o *onOrder) names() names          { return names{deductions: o.rows, key: o.Keyed, counts: true} }

// decide tries all of them on a copy first, so that a refusal leaves the view as it was.
func (o *onOrder) decide(v *view) result {
	if op, ok := v.operations[o.Keyed]; ok && o.Key != "" {
		return replayed(op, o.Fingerprint())
	}
	if len(o.each) == 0 {
		return refuse(stock.ErrWrongState)
	}
	if res := o.apply(v.copyFor(o)); res.err != nil {
		return res
	}
	return o.apply(v)
}

func (o *onOrder) apply(v *view) result {
	res := result{each: make([]result, len(o.each))}
	for i, op := range o.each {
		if res.each[i] = op.decide(v); res.each[i].err != nil {
			return res.each[i]
		}
	}
	if o.Key != "" {
		v.record(o.Keyed, operationRow{
			fingerprint: o.Fingerprint(), kind: stock.ReturnOrderOperation, deduction: o.rows[0].ID, version: res.position(),
		})
	}
	return res
}

// Order is the deductions of an order that count, as they are by the ledger's clock: of each part the live one, else the
// last. [stock.ErrNotFound] when there are none.
func (l *Ledger) Order(ctx context.Context, client, orderID string) ([]stock.Deduction, error) {
	rows, v, err := l.current(ctx, client, orderID)
	if err != nil {
		return nil, err
	}
	all := make([]stock.Deduction, len(rows))
	for i, row := range rows {
		all[i] = v.asOfNow(row)
	}
	return all, nil
}

// current reads the rows of [Ledger.Order] as they are stored, and the view they are in.
func (l *Ledger) current(ctx context.Context, client, orderID string) ([]*deductionRow, *view, error) {
	ids, err := l.reads.ListCurrent(ctx, dbsqlc.ListCurrentParams{Client: client, OrderID: orderID, RowLimit: stock.MaxOrderLines + 1})
	if err != nil {
		return nil, nil, readError(err)
	}
	if len(ids) == 0 {
		return nil, nil, stock.ErrNotFound
	}
	v := newView(0, new(dbsqlc.WriteBatchParams))
	if err := readDeductions(ctx, l.reads, v, ids, justRead); err != nil {
		return nil, nil, readError(err)
	}
	rows := make([]*deductionRow, 0, len(ids))
	lines := 0
	for _, id := range ids {
		if row := v.deductions[id]; row != nil {
			rows = append(rows, row)
			lines += len(row.Lines)
		}
	}
	if lines > stock.MaxOrderLines {
		return nil, nil, stock.InvalidField("", fmt.Sprintf("the order has more than %d lines in all: change its deductions one by one", stock.MaxOrderLines))
	}
	return rows, v, nil
}

// CommitOrder takes what the deductions of an order hold, all or none. Those that were released or came back are left.
func (l *Ledger) CommitOrder(ctx context.Context, r *stock.OrderRequest) (*stock.OrderOutcome, error) {
	return l.changeOrder(ctx, r, func(d *stock.Deduction) bool { return d.State.Live() || d.State == stock.Expired },
		func(on onDeduction) operation {
			return newCommit(on, &stock.CommitRequest{Keyed: stock.Keyed{Client: r.Client}, ID: on.id})
		})
}

// ReleaseOrder gives back what the deductions of an order hold, all or none. Those that came back are left.
func (l *Ledger) ReleaseOrder(ctx context.Context, r *stock.OrderRequest) (*stock.OrderOutcome, error) {
	return l.changeOrder(ctx, r, func(d *stock.Deduction) bool { return d.State != stock.Returned },
		func(on onDeduction) operation { return &release{on} })
}

// ReturnOrder books that everything came back that was committed for an order and has not come back yet.
func (l *Ledger) ReturnOrder(ctx context.Context, r *stock.OrderRequest) (*stock.OrderOutcome, error) {
	return l.changeOrder(ctx, r, isOut, func(on onDeduction) operation {
		return &giveIn{onDeduction: on, ReturnRequest: &stock.ReturnRequest{Keyed: stock.Keyed{Client: r.Client}, ID: on.id, Reason: r.Reason}}
	})
}

// isOut reports whether something was committed and has not come back.
func isOut(d *stock.Deduction) bool {
	return slices.ContainsFunc(d.Lines, func(l stock.Line) bool { return l.Committed > l.Returned })
}

// changeOrder sends an operation on the deductions of an order it concerns through the sequencer.
func (l *Ledger) changeOrder(
	ctx context.Context, r *stock.OrderRequest, concerns func(*stock.Deduction) bool, make func(onDeduction) operation,
) (*stock.OrderOutcome, error) {
	rows, v, err := l.current(ctx, r.Client, r.OrderID)
	if err != nil {
		return nil, err
	}
	var some []*deductionRow
	for _, row := range rows {
		if now := v.asOfNow(row); concerns(&now) {
			some = append(some, row)
		}
	}
	res := l.do(ctx, newOnOrder(r, some, make))
	switch {
	case len(some) == 0 && errors.Is(res.err, stock.ErrWrongState):
		return nil, &stock.StateError{Deduction: v.asOfNow(rows[0])}
	case res.err != nil:
		return nil, res.err
	case res.replay != nil:
		return l.orderNow(ctx, rows, !res.own)
	}
	out := &stock.OrderOutcome{Replayed: true}
	for i := range res.each {
		out.Deductions = append(out.Deductions, *res.each[i].outcome)
		out.Replayed = out.Replayed && res.each[i].outcome.Replayed
	}
	return out, nil
}

// orderNow answers with deductions as they are now.
func (l *Ledger) orderNow(ctx context.Context, rows []*deductionRow, replayed bool) (*stock.OrderOutcome, error) {
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	found, err := l.outcomes(ctx, ids)
	if err != nil {
		return nil, doneButNotRead(err)
	}
	out := &stock.OrderOutcome{Replayed: replayed}
	for _, id := range ids {
		if one, ok := found[id]; ok {
			out.Deductions = append(out.Deductions, one)
		}
	}
	return out, nil
}

// orderOf reads the order that a deduction belongs to.
func (l *Ledger) orderOf(ctx context.Context, client string, id uuid.UUID) ([]stock.Outcome, error) {
	d, err := l.readRaw(ctx, id)
	if err != nil {
		return nil, err
	}
	rows, _, err := l.current(ctx, client, d.OrderID)
	if err != nil {
		return nil, err
	}
	out, err := l.orderNow(ctx, rows, true)
	if err != nil {
		return nil, err
	}
	return out.Deductions, nil
}
