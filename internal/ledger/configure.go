package ledger

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Configure creates an item or changes its settings. It is the one write that does not go through the
// sequencer: it is rare, concerns one row, and its own condition on the version guards it.
func (l *Ledger) Configure(ctx context.Context, r *stock.ConfigureRequest) (*stock.Configured, error) {
	if r.IfVersion == nil {
		row, err := l.reads.InsertItem(ctx, dbsqlc.InsertItemParams{
			Sku: string(r.Item.SKU), Location: string(r.Item.Location), SafetyStock: int64(r.SafetyStock),
			LowStockAt: (*int64)(r.LowStockAt), Label: r.Label,
		})
		if err == nil {
			return l.configured(ctx, &row, true)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, writeError(err)
		}
	}
	if r.MustBeNew {
		return nil, l.notAsExpected(ctx, r.Item)
	}
	row, err := l.reads.ConfigureItem(ctx, dbsqlc.ConfigureItemParams{
		Sku: string(r.Item.SKU), Location: string(r.Item.Location), SafetyStock: int64(r.SafetyStock),
		LowStockAt: (*int64)(r.LowStockAt), Label: r.Label, IfVersion: r.IfVersion, Actor: r.Client,
	})
	switch {
	case err == nil:
		changed := dbsqlc.Item(row)
		return l.configured(ctx, &changed, false)
	case !errors.Is(err, pgx.ErrNoRows):
		return nil, writeError(err)
	}
	current, err := l.Item(ctx, r.Item)
	switch {
	case err != nil:
		return nil, err
	case r.IfVersion != nil && *r.IfVersion != current.Version:
		return nil, &stock.PreconditionError{Reason: stock.ErrPreconditionFailed, Levels: current.Levels}
	}
	return &stock.Configured{Stock: current}, nil
}

// configured makes the new figures known before anybody is answered.
func (l *Ledger) configured(ctx context.Context, row *dbsqlc.Item, created bool) (*stock.Configured, error) {
	out := &stock.Configured{Stock: stockOf(row), Created: created}
	epoch, err := l.reads.ReadEpoch(ctx)
	if err != nil {
		return nil, stock.ErrUnknownOutcome
	}
	l.learned([]*itemRow{{id: row.ID, seen: row.Version, levels: out.Stock.Levels, lowAt: lowMark(row.LowStockAt)}}, uint32(epoch))
	return out, nil
}

func (l *Ledger) notAsExpected(ctx context.Context, item stock.Item) error {
	current, err := l.Item(ctx, item)
	if err != nil {
		return err
	}
	return &stock.PreconditionError{Reason: stock.ErrPreconditionFailed, Levels: current.Levels}
}
