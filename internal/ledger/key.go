package ledger

import (
	"cmp"
	"context"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// void uses a key up, so that nothing can happen under it any more: a request that comes later, or is on its way in
// another process, meets the tombstone in the unique index. A key that was used already is left as it is.
type void struct{ key stock.Keyed }

func (*void) touches() []stock.Item { return nil }
func (o *void) names() names        { return names{key: o.key} }

func (o *void) decide(v *view) result {
	if op, ok := v.operations[o.key]; ok {
		return result{replay: &op}
	}
	op := operationRow{kind: stock.VoidOperation}
	v.record(o.key, op)
	return result{voided: &op}
}

// Void makes sure that nothing will happen under a key, or finds what did, Replayed.
func (l *Ledger) Void(ctx context.Context, key stock.Keyed) (*stock.Operation, error) {
	res := l.do(ctx, &void{key})
	if res.err != nil {
		return nil, res.err
	}
	out, err := l.operation(ctx, key, cmp.Or(res.voided, res.replay))
	if err != nil {
		return nil, doneButNotRead(err)
	}
	out.Replayed = res.replay != nil
	return out, nil
}

// Operation is what happened under a key; [stock.ErrNotFound] when nothing has, which does not say that nothing will.
func (l *Ledger) Operation(ctx context.Context, key stock.Keyed) (*stock.Operation, error) {
	v := newView(0, new(dbsqlc.WriteBatchParams))
	if err := readNames(ctx, l.reads, v, needs{keys: []stock.Keyed{key}}); err != nil {
		return nil, readError(err)
	}
	op, ok := v.operations[key]
	if !ok {
		return nil, stock.ErrNotFound
	}
	return l.operation(ctx, key, &op)
}

// operation reads what a key did, as it is now.
func (l *Ledger) operation(ctx context.Context, key stock.Keyed, op *operationRow) (*stock.Operation, error) {
	out := &stock.Operation{Key: key.Key, Kind: op.kind, At: op.at}
	var err error
	switch op.kind {
	case stock.VoidOperation:
	case stock.AdjustOperation:
		out.Adjustment, err = l.adjustment(ctx, op)
	case stock.ReturnOrderOperation:
		out.Outcomes, err = l.orderOf(ctx, key.Client, op.deduction)
	default:
		out.Outcome, err = l.Deduction(ctx, key.Client, op.deduction)
	}
	return out, err
}
