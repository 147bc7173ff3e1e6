package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// OpenStocktake begins an exclusive count of an item: [stock.ErrStocktakeOpen] while another one's time is not over.
// The same key again is answered with the count it opened, Replayed.
func (l *Ledger) OpenStocktake(ctx context.Context, r *stock.OpenStocktakeRequest) (*stock.Stocktake, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	if s, err := l.openedUnder(ctx, r); s != nil || err != nil {
		return s, err
	}
	_, err = l.reads.OpenStocktake(ctx, dbsqlc.OpenStocktakeParams{
		ID: id, Client: r.Client, Key: r.Key, Reference: r.Reference, Lease: interval(r.Lease),
		Sku: string(r.Item.SKU), Location: string(r.Item.Location),
	})
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return l.opened(ctx, id)
	case errors.As(err, &refused) && refused.ConstraintName == "stocktakes_client_key_key":
		return l.openedUnder(ctx, r)
	case !errors.Is(err, pgx.ErrNoRows):
		return nil, writeError(err)
	}
	return nil, l.notOpened(ctx, r)
}

func (l *Ledger) opened(ctx context.Context, id uuid.UUID) (*stock.Stocktake, error) {
	s, err := l.readStocktake(ctx, id)
	if err != nil {
		return nil, doneButNotRead(err)
	}
	return s, nil
}

// openedUnder finds the count that a request's key opened before; nil when there is none.
func (l *Ledger) openedUnder(ctx context.Context, r *stock.OpenStocktakeRequest) (*stock.Stocktake, error) {
	id, err := l.reads.FindStocktake(ctx, dbsqlc.FindStocktakeParams{Client: r.Client, Key: r.Key})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if err != nil {
		return nil, readError(err)
	}
	s, err := l.opened(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case s.Item != r.Item || s.Reference != r.Reference || s.ExpiresAt.Sub(s.OpenedAt).Round(time.Second) != r.Lease:
		return nil, stock.ErrKeyReused
	}
	s.Replayed = true
	return s, nil
}

// notOpened says why a count was not opened.
func (l *Ledger) notOpened(ctx context.Context, r *stock.OpenStocktakeRequest) error {
	if _, err := l.Item(ctx, r.Item); err != nil {
		return err
	}
	id, err := l.reads.FindOpenStocktake(ctx, dbsqlc.FindOpenStocktakeParams{
		Sku: string(r.Item.SKU), Location: string(r.Item.Location),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return stock.ErrOverloaded // it has ended since: the same request may be sent again
	}
	if err != nil {
		return readError(err)
	}
	other, err := l.readStocktake(ctx, id)
	if err != nil {
		return err
	}
	return &stock.StocktakeError{Reason: stock.ErrStocktakeOpen, Stocktake: *other}
}

// CompleteStocktake writes a count: the difference between what was counted and what was on hand when the count was
// opened, so that what moved meanwhile stays moved. Only the item's newest count whose time is not over may; any
// other is [stock.ErrStocktakeOver]. The same figure again is answered with what it wrote, Replayed.
func (l *Ledger) CompleteStocktake(ctx context.Context, r *stock.CompleteStocktakeRequest) (*stock.Stocktake, error) {
	s, err := l.Stocktake(ctx, r.Client, r.ID)
	if err != nil {
		return nil, err
	}
	if s.Item != r.Item {
		return nil, stock.ErrNotFound
	}
	res := l.do(ctx, &count{s, r.Counted})
	if errors.Is(res.err, stock.ErrStale) {
		return nil, &stock.StocktakeError{Reason: stock.ErrStocktakeOver, Stocktake: *s}
	}
	if res.err != nil {
		return nil, res.err
	}
	done, err := l.readStocktake(ctx, r.ID)
	if err != nil {
		return nil, doneButNotRead(err)
	}
	if done.Counted == nil || done.Counted.Quantity != r.Counted {
		return nil, &stock.StocktakeError{Reason: stock.ErrStocktakeOver, Stocktake: *done}
	}
	done.Replayed = res.replay != nil
	// The item may be counted again at once; should this be lost, it may when the time of the count is over.
	if _, err := l.reads.EndFence(ctx, dbsqlc.EndFenceParams{Key: s.Fence.Key, Token: int64(s.Fence.Token)}); err != nil {
		l.log.Warn("free the item of a completed stocktake", "stocktake", r.ID, "error", err)
	}
	return done, nil
}

// Stocktake by id, with what it wrote if it is completed; [stock.ErrNotFound] when it is not the client's.
func (l *Ledger) Stocktake(ctx context.Context, client string, id uuid.UUID) (*stock.Stocktake, error) {
	s, err := l.readStocktake(ctx, id)
	if err == nil && s.Client != client {
		return nil, stock.ErrNotFound
	}
	return s, err
}

func (l *Ledger) readStocktake(ctx context.Context, id uuid.UUID) (*stock.Stocktake, error) {
	r, err := l.reads.GetStocktake(ctx, id)
	if err != nil {
		return nil, readError(err)
	}
	s := &stock.Stocktake{
		ID: r.ID, Item: stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)}, State: stock.StocktakeOver,
		Fence: stock.Fence{Key: fmt.Sprint("stocktake/", r.ItemID), Token: stock.Token(r.Token)}, Client: r.Client, Reference: r.Reference, OpenedAt: r.OpenedAt, ExpiresAt: r.ExpiresAt,
		Version: r.Version, OnHand: stock.Quantity(r.OnHand),
	}
	switch {
	case r.Written != nil:
		s.State = stock.StocktakeCompleted
		s.Counted, err = l.readCount(ctx, &r)
	case r.Open:
		s.State = stock.StocktakeOpen
	}
	return s, err
}

// readCount reads what a completed count wrote, and what had moved since it was opened.
func (l *Ledger) readCount(ctx context.Context, r *dbsqlc.GetStocktakeRow) (*stock.Counted, error) {
	row, err := l.reads.GetMovement(ctx, dbsqlc.GetMovementParams{ItemID: r.ItemID, Version: *r.Written})
	if err != nil {
		return nil, readError(err)
	}
	sum, err := l.reads.SumMovements(ctx, dbsqlc.SumMovementsParams{
		ItemID: r.ItemID, AfterVersion: r.Version, BeforeVersion: *r.Written,
	})
	if err != nil {
		return nil, readError(err)
	}
	moved := dbsqlc.ListMovementsRow(row)
	m := movementOf(&moved)
	return &stock.Counted{
		Quantity: stock.Quantity(r.OnHand) + m.DeltaOnHand, Movement: m, Movements: sum.Movements,
		Moved: movedOf(sum.Received, sum.Deducted, sum.Returned, sum.Adjusted),
	}, nil
}

// count is the operation of [Ledger.CompleteStocktake].
type count struct {
	stocktake *stock.Stocktake
	counted   stock.Quantity
}

func (o *count) touches() []stock.Item { return []stock.Item{o.stocktake.Item} }

// key is what a count has its effect under, once.
func (o *count) key() stock.Keyed {
	return stock.Keyed{Client: nobody, Key: "stocktake " + o.stocktake.ID.String()}
}

func (o *count) names() names { return names{key: o.key(), fence: o.stocktake.Fence} }

func (o *count) decide(v *view) result {
	if op, ok := v.operations[o.key()]; ok {
		return result{replay: &op} // with which figure, the caller sees
	}
	if err := v.stale(o.stocktake.Fence); err != nil {
		return refuse(err)
	}
	row := v.items[o.stocktake.Item]
	if row == nil {
		return refuse(stock.ErrNotFound)
	}
	change := adjust{AdjustRequest: &stock.AdjustRequest{
		Item: o.stocktake.Item, Kind: stock.Count, Delta: o.counted - o.stocktake.OnHand, Reference: o.stocktake.Reference,
		Reason: "stocktake " + o.stocktake.ID.String(), Keyed: stock.Keyed{Client: o.stocktake.Client},
	}}
	return change.apply(v, row, o.key())
}
