package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// readError names what a failed reading means to a caller.
func readError(err error) error {
	var answer *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return stock.ErrNotFound
	case errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" && !isOutage(refused(answer)):
		return fmt.Errorf("read: %w", err)
	}
	return fmt.Errorf("%w: %w", stock.ErrLedgerUnavailable, err)
}

// writeError is readError for a statement that writes: one that was sent and not answered may have been applied.
func writeError(err error) error {
	var answer *pgconn.PgError
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || unsent(err) || errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" {
		return readError(err)
	}
	return fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
}

// doneButNotRead is the answer when what was done before is known to be there and cannot be read: not that the
// ledger is out of reach, which says that nothing was done.
func doneButNotRead(err error) error {
	return fmt.Errorf("%w: read what was done: %v", stock.ErrUnknownOutcome, err) //nolint:errorlint // it would say too much
}

// readRaw reads a deduction as it is stored: a hold whose time is over may still be called held.
func (l *Ledger) readRaw(ctx context.Context, id uuid.UUID) (*stock.Deduction, error) {
	d, _, err := l.readWithClock(ctx, id)
	return d, err
}

// read reads a deduction as it is by the ledger's clock, whether or not it was swept.
func (l *Ledger) read(ctx context.Context, id uuid.UUID) (*stock.Deduction, error) {
	d, due, err := l.readWithClock(ctx, id)
	if err == nil && due {
		showExpired(d)
	}
	return d, err
}

func (l *Ledger) readWithClock(ctx context.Context, id uuid.UUID) (d *stock.Deduction, due bool, err error) {
	v := newView(0, new(dbsqlc.WriteBatchParams))
	if err := readDeductions(ctx, l.reads, v, []uuid.UUID{id}, justRead); err != nil {
		return nil, false, readError(err)
	}
	row := v.deductions[id]
	if row == nil {
		return nil, false, stock.ErrNotFound
	}
	return &row.Deduction, v.due(row), nil
}

// showExpired makes a hold whose time is over look as the sweeper will leave it.
func showExpired(d *stock.Deduction) {
	for i := range d.Lines {
		d.Lines[i].Held = 0
	}
	d.State = ended(d.Lines, stock.Expired)
}

// Deduction by id, with the figures of its items now; [stock.ErrNotFound] when it is not the client's.
func (l *Ledger) Deduction(ctx context.Context, client string, id uuid.UUID) (*stock.Outcome, error) {
	found, err := l.outcomes(ctx, []uuid.UUID{id})
	if err != nil {
		return nil, err
	}
	out, ok := found[id]
	if !ok || out.Deduction.Client != client {
		return nil, stock.ErrNotFound
	}
	return &out, nil
}

// outcomes reads deductions as they are by the ledger's clock, each with the figures of its items now. Those that do
// not exist are missing.
func (l *Ledger) outcomes(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]stock.Outcome, error) {
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // of nothing there is nothing
	}
	v := newView(0, new(dbsqlc.WriteBatchParams))
	if err := readDeductions(ctx, l.reads, v, ids, justRead); err != nil {
		return nil, readError(err)
	}
	var items []stock.Item
	for _, d := range v.deductions {
		for i := range d.Lines {
			items = append(items, d.Lines[i].Item)
		}
	}
	levels, err := l.Levels(ctx, items)
	if err != nil {
		return nil, err
	}
	for i := range levels {
		v.items[levels[i].Item] = &itemRow{levels: levels[i]}
	}
	found := make(map[uuid.UUID]stock.Outcome, len(ids))
	for id, d := range v.deductions {
		found[id] = *v.answer(d, 0).outcome
	}
	return found, nil
}

// findDeductions returns the ids of what is asked for, whatever its state.
func (l *Ledger) findDeductions(ctx context.Context, q stock.DeductionQuery, limit int) ([]uuid.UUID, error) {
	if q.Number != 0 {
		if q.After != nil {
			return nil, nil // there is one at most
		}
		return l.reads.ListByNumber(ctx, dbsqlc.ListByNumberParams{Number: q.Number, Client: q.Client})
	}
	after := uuid.UUID{}
	if q.After != nil {
		after = *q.After
	}
	return l.reads.ListByOrder(ctx, dbsqlc.ListByOrderParams{
		Client: q.Client, OrderID: q.OrderID, AfterID: after, RowLimit: int32(limit),
	})
}

// Deductions of one order, oldest first, or the one of a number. Of those in one state a page may have few, or none, and
// still not be the last.
func (l *Ledger) Deductions(ctx context.Context, q stock.DeductionQuery) (*stock.DeductionPage, error) {
	look := q.Limit
	if q.State != "" {
		look = stock.MaxPage
	}
	ids, err := l.findDeductions(ctx, q, look)
	if err != nil {
		return nil, readError(err)
	}
	v := newView(0, new(dbsqlc.WriteBatchParams))
	if err := readDeductions(ctx, l.reads, v, ids, justRead); err != nil {
		return nil, readError(err)
	}
	page := new(stock.DeductionPage)
	for i, id := range ids {
		if row := v.deductions[id]; row != nil {
			if d := v.asOfNow(row); q.State == "" || q.State == d.State {
				page.Deductions = append(page.Deductions, d)
			}
		}
		if full := len(page.Deductions) == q.Limit; full || i+1 == look {
			page.Next = &id
			break
		}
	}
	return page, nil
}

// Levels reads the figures of items as they are committed now; items that do not exist are missing, and an
// item that is named twice is there once.
func (l *Ledger) Levels(ctx context.Context, items []stock.Item) ([]stock.Levels, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, readError(err)
	}
	defer conn.Release()
	queries := dbsqlc.New(conn)
	epoch, err := queries.ReadEpoch(ctx)
	if err != nil {
		return nil, readError(err)
	}
	v := newView(len(items), new(dbsqlc.WriteBatchParams))
	if err := readItems(ctx, queries, v, items, justRead); err != nil {
		return nil, readError(err)
	}
	levels := make([]stock.Levels, 0, len(v.items))
	for _, item := range items {
		row := v.items[item]
		if row == nil || row.listed {
			continue
		}
		row.listed = true
		row.levels.Epoch = uint32(epoch)
		levels = append(levels, row.levels)
	}
	return levels, nil
}

// Due lists holds whose time is over, longest overdue first, at most limit.
func (l *Ledger) Due(ctx context.Context, limit int) ([]uuid.UUID, error) {
	ids, err := l.reads.ListDue(ctx, int32(limit))
	if err != nil {
		return nil, readError(err)
	}
	return ids, nil
}

// DueOn lists holds on the items whose time is over, at most limit.
func (l *Ledger) DueOn(ctx context.Context, items []stock.Item, limit int) ([]uuid.UUID, error) {
	arg := dbsqlc.ListDueOnParams{Skus: make([]string, len(items)), Locations: make([]string, len(items)), RowLimit: int32(limit)}
	for i, item := range items {
		arg.Skus[i], arg.Locations[i] = string(item.SKU), string(item.Location)
	}
	ids, err := l.reads.ListDueOn(ctx, arg)
	if err != nil {
		return nil, readError(err)
	}
	return ids, nil
}

// Item with its figures and settings; [stock.ErrNotFound] when there is none.
func (l *Ledger) Item(ctx context.Context, item stock.Item) (stock.Stock, error) {
	row, err := l.reads.GetItem(ctx, dbsqlc.GetItemParams{Sku: string(item.SKU), Location: string(item.Location)})
	if err != nil {
		return stock.Stock{}, readError(err)
	}
	found := stockOf(&row)
	if defect.On(defect.StaleRead) {
		found.Levels = l.memory.stale(found.Levels)
	}
	return found, nil
}

// Locations lists every location of one SKU, at most [stock.MaxPage]; [stock.ErrNotFound] when there is none.
func (l *Ledger) Locations(ctx context.Context, sku stock.SKU) ([]stock.Stock, error) {
	rows, err := l.reads.ListLocations(ctx, dbsqlc.ListLocationsParams{Sku: string(sku), RowLimit: stock.MaxPage})
	if err != nil {
		return nil, readError(err)
	}
	if len(rows) == 0 {
		return nil, stock.ErrNotFound
	}
	list := make([]stock.Stock, len(rows))
	for i := range rows {
		list[i] = stockOf(&rows[i])
	}
	return list, nil
}

// List items in item order.
func (l *Ledger) List(ctx context.Context, q stock.ListQuery) ([]stock.Stock, error) {
	arg := dbsqlc.ListItemsParams{Prefix: q.Prefix, PrefixEnd: prefixEnd(q.Prefix), Low: q.Low, RowLimit: int32(q.Limit)}
	if q.After != nil {
		arg.AfterSku, arg.AfterLocation = string(q.After.SKU), string(q.After.Location)
	}
	if q.Location != nil {
		arg.Location = string(*q.Location)
	}
	rows, err := l.reads.ListItems(ctx, arg)
	if err != nil {
		return nil, readError(err)
	}
	list := make([]stock.Stock, len(rows))
	for i := range rows {
		list[i] = stockOf(&rows[i])
	}
	return list, nil
}

// prefixEnd is the first text, in byte order, after everything that begins with prefix; empty when there is
// none that Postgres could hold. The last character is raised, so it stays valid UTF-8.
func prefixEnd(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		next := runes[i] + 1
		if next == 0xD800 { // the surrogates are no characters
			next = 0xE000
		}
		if next <= 0x10FFFF {
			runes[i] = next
			return string(runes[:i+1])
		}
	}
	return ""
}

func stockOf(r *dbsqlc.Item) stock.Stock {
	s := stock.Stock{
		Levels: stock.Levels{
			Item:   stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)},
			OnHand: stock.Quantity(r.OnHand), Held: stock.Quantity(r.Held), SafetyStock: stock.Quantity(r.SafetyStock),
			Version: r.Version,
		},
		Label: r.Label, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if r.LowStockAt != nil {
		at := stock.Quantity(*r.LowStockAt)
		s.LowStockAt = &at
	}
	return s
}

// Movements of one item by version; [stock.ErrNotFound] when there is no such item.
func (l *Ledger) Movements(ctx context.Context, q stock.MovementQuery) ([]stock.Movement, error) {
	item, err := l.reads.GetItem(ctx, dbsqlc.GetItemParams{Sku: string(q.Item.SKU), Location: string(q.Item.Location)})
	if err != nil {
		return nil, readError(err)
	}
	rows, err := l.reads.ListMovements(ctx, dbsqlc.ListMovementsParams{
		ItemID: item.ID, AfterVersion: q.AfterVersion, RowLimit: int32(q.Limit),
	})
	if err != nil {
		return nil, readError(err)
	}
	list := make([]stock.Movement, len(rows))
	for i := range rows {
		list[i] = movementOf(&rows[i])
	}
	return list, nil
}

func movementOf(r *dbsqlc.ListMovementsRow) stock.Movement {
	return stock.Movement{
		Version: r.Version, Kind: stock.MovementKind(r.Kind),
		DeltaOnHand: stock.Quantity(r.DeltaOnHand), DeltaHeld: stock.Quantity(r.DeltaHeld),
		OnHand: stock.Quantity(r.OnHand), Held: stock.Quantity(r.Held),
		Reason: r.Reason, Reference: r.Reference, Actor: r.Actor, Deduction: r.DeductionID, At: r.At,
	}
}

// adjusted turns a result into the caller's answer.
func (l *Ledger) adjusted(ctx context.Context, res result) (*stock.Adjustment, error) {
	if res.replay == nil {
		return res.adjustment, res.err
	}
	out, err := l.adjustment(ctx, res.replay)
	if err != nil {
		return nil, err
	}
	out.Replayed = !res.own
	return out, nil
}

// adjustment reads what an adjustment did, and the item's figures now.
func (l *Ledger) adjustment(ctx context.Context, op *operationRow) (*stock.Adjustment, error) {
	row, err := l.reads.GetMovement(ctx, dbsqlc.GetMovementParams{ItemID: op.item, Version: op.version})
	if err != nil {
		return nil, doneButNotRead(err)
	}
	current, err := l.Item(ctx, op.name)
	if err != nil {
		return nil, doneButNotRead(err)
	}
	moved := dbsqlc.ListMovementsRow(row)
	return &stock.Adjustment{Movement: movementOf(&moved), Levels: current.Levels, Replayed: true}, nil
}

// Ready reports why the ledger cannot decide now, or nil.
func (l *Ledger) Ready(ctx context.Context) error {
	if _, err := l.reads.ReadEpoch(ctx); err != nil {
		return readError(err)
	}
	return nil
}
