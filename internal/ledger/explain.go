package ledger

import (
	"context"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// maxHolders and maxLastMovements bound what an explanation lists.
	maxHolders       = 50
	maxCustomers     = 10
	maxLastMovements = 10
)

// Explain an item: its figures, its open holds, the customers who have most of it and its last movements; [stock.ErrNotFound] when there is no such item.
func (l *Ledger) Explain(ctx context.Context, item stock.Item) (*stock.Explanation, error) {
	var e *stock.Explanation
	err := l.snapshot(ctx, func(q *dbsqlc.Queries, epoch uint32) (err error) {
		e, err = explain(ctx, q, item)
		if err == nil {
			e.Levels.Epoch = epoch
		}
		return err
	})
	if err != nil {
		return nil, readError(err)
	}
	return e, nil
}

func explain(ctx context.Context, q *dbsqlc.Queries, item stock.Item) (*stock.Explanation, error) {
	row, err := q.GetItem(ctx, dbsqlc.GetItemParams{Sku: string(item.SKU), Location: string(item.Location)})
	if err != nil {
		return nil, err
	}
	sum, err := q.SumHolders(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	holders, err := q.ListHolders(ctx, dbsqlc.ListHoldersParams{ItemID: row.ID, RowLimit: maxHolders})
	if err != nil {
		return nil, err
	}
	customers, err := q.ListCustomers(ctx, dbsqlc.ListCustomersParams{ItemID: row.ID, RowLimit: maxCustomers})
	if err != nil {
		return nil, err
	}
	movements, err := q.LastMovements(ctx, dbsqlc.LastMovementsParams{ItemID: row.ID, RowLimit: maxLastMovements})
	if err != nil {
		return nil, err
	}
	e := &stock.Explanation{
		Levels: stockOf(&row).Levels, ReadAt: sum.ReadAt,
		Holds: sum.Holds, Held: stock.Quantity(sum.Held), Overdue: stock.Quantity(sum.Overdue),
	}
	for i := range holders {
		h := &holders[i]
		e.Holders = append(e.Holders, stock.Holder{
			Deduction: h.ID, Client: h.Client, OrderID: h.OrderID, Part: h.Part,
			Line: int(h.LineNo), Held: stock.Quantity(h.Held), ExpiresAt: h.ExpiresAt,
		})
	}
	for i := range customers {
		c := &customers[i]
		e.Customers, e.Counted = c.Customers, stock.Quantity(c.AllUnits)
		e.Most = append(e.Most, stock.CustomerShare{Customer: stock.Customer{Client: c.Client, Name: c.Customer}, Units: stock.Quantity(c.Units)})
	}
	for i := range movements {
		moved := dbsqlc.ListMovementsRow(movements[i])
		e.Movements = append(e.Movements, movementOf(&moved))
	}
	return e, nil
}
