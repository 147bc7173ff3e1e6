package ledger

import (
	"context"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Events behind a place. A transaction that is still writing somewhere holds back what comes after it, so that
// nothing ever appears before what was listed.
func (l *Ledger) Events(ctx context.Context, q stock.EventQuery) ([]stock.Event, error) {
	epoch, err := l.reads.ReadEpoch(ctx)
	if err != nil {
		return nil, readError(err)
	}
	arg := dbsqlc.ListEventsParams{
		AfterEpoch: q.After.Epoch, AfterTx: q.After.Tx, AfterItem: q.After.Item, AfterVersion: q.After.Version,
		Epoch: epoch, RowLimit: int32(q.Limit),
	}
	if q.Location != nil {
		arg.Location = string(*q.Location)
	}
	rows, err := l.reads.ListEvents(ctx, arg)
	if err != nil {
		return nil, readError(err)
	}
	list := make([]stock.Event, len(rows))
	for i := range rows {
		list[i] = eventOf(&rows[i])
	}
	return list, nil
}

func eventOf(r *dbsqlc.ListEventsRow) stock.Event {
	return stock.Event{
		Kind: stock.EventKind(r.Kind), LowStockAt: stock.Quantity(r.LowStockAt), At: r.At,
		Place: stock.EventPlace{Epoch: r.Epoch, Tx: r.Tx, Item: r.ItemID, Version: r.Version},
		Levels: stock.Levels{
			Item:   stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)},
			OnHand: stock.Quantity(r.OnHand), Held: stock.Quantity(r.Held), SafetyStock: stock.Quantity(r.SafetyStock),
			Version: r.Version, Epoch: uint32(r.Epoch),
		},
	}
}
