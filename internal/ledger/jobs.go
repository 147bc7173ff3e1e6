package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// keptRuns is how many runs of a job are remembered: three years of a daily one, a quarter of an hour of one that runs
// every second.
const keptRuns = 1000

// BeginRun claims a job's fence and then the tick. It returns false if the tick has ended, or a later one was begun:
// then there is nothing to do. A tick that somebody began and never ended is taken over. [stock.ErrStale]: a newer
// holder has claimed the fence.
func (l *Ledger) BeginRun(ctx context.Context, t *stock.Tick) (bool, error) {
	row, err := l.reads.BeginRun(ctx, dbsqlc.BeginRunParams{
		Fence: t.Fence().Key, Token: int64(t.Token), TimeLimit: interval(t.Limit),
		Job: t.Job, ScheduledAt: t.ScheduledAt, Runner: t.Runner,
	})
	switch {
	case err != nil:
		return false, writeError(err)
	case !row.Claimed:
		return false, stock.ErrStale
	}
	return row.Begun, nil
}

// EndRun writes down how a run ended: [stock.ErrStale] if a newer holder has claimed the fence, or it has ended before.
func (l *Ledger) EndRun(ctx context.Context, t *stock.Tick, e stock.Ended) error {
	ended, err := l.reads.EndRun(ctx, dbsqlc.EndRunParams{
		Fence: t.Fence().Key, Token: int64(t.Token), Job: t.Job, ScheduledAt: t.ScheduledAt,
		Outcome: string(e.Outcome), Rows: e.Rows, Error: e.Error,
	})
	switch {
	case err != nil:
		return writeError(err)
	case ended == 0:
		return stock.ErrStale
	}
	if _, err := l.reads.PruneRuns(ctx, dbsqlc.PruneRunsParams{Job: t.Job, Keep: keptRuns}); err != nil {
		l.log.Warn("forget old runs", "job", t.Job, "error", err) // the next run does it
	}
	return nil
}

// Runs lists the last runs of a job, the latest tick first.
func (l *Ledger) Runs(ctx context.Context, job string, limit int) ([]stock.Run, error) {
	rows, err := l.reads.ListRuns(ctx, dbsqlc.ListRunsParams{Job: job, RowLimit: int32(limit)})
	if err != nil {
		return nil, readError(err)
	}
	runs := make([]stock.Run, len(rows))
	for i := range rows {
		r := &rows[i]
		runs[i] = stock.Run{
			Job: r.Job, ScheduledAt: r.ScheduledAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Token: stock.Token(r.Token),
			Runner: r.Runner, Attempts: int(r.Attempts), Outcome: stock.RunOutcome(r.Outcome), Rows: r.Rows, Error: r.Error,
		}
	}
	return runs, nil
}

// guarded runs a transaction under a fence, the zero one guarding nothing: [stock.ErrStale], and nothing written, unless it
// is the newest claim and its time is not over. Nobody can claim the fence until the transaction ends, so no write comes after a newer claim.
func (l *Ledger) guarded(ctx context.Context, f stock.Fence, write func(*dbsqlc.Queries) error) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return readError(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return readError(err)
	}
	defer rollBack(tx)
	queries := dbsqlc.New(tx)
	if err := queries.AllowLongStatements(ctx); err != nil {
		return readError(err)
	}
	v := newView(0, new(dbsqlc.WriteBatchParams))
	if err := readFences(ctx, queries, v, []string{f.Key}); err != nil {
		return readError(err)
	}
	if err := v.stale(f); err != nil {
		return err
	}
	if err := write(queries); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return writeError(err)
	}
	return nil
}

// rollBack ends a transaction that was not committed. A session on which that fails is not used again.
func rollBack(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // the pool looks at the session when it gets it back
}

const (
	// settleSlice is how many items are settled in one transaction.
	settleSlice = 500
	// maxDays bounds one run of the settlement; what is left of a longer gap is for the next one.
	maxDays = 400
)

// Settle settles every day that is over and is not settled, the oldest first, and returns how many rows it wrote.
// Days are those of UTC.
func (l *Ledger) Settle(ctx context.Context, f stock.Fence) (int64, error) {
	var written int64
	for range maxDays {
		days, err := l.reads.DaysToSettle(ctx)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return written, nil // there are no items
		case err != nil:
			return written, readError(err)
		case days.First.After(days.Last):
			return written, nil
		}
		n, err := l.settleDay(ctx, f, days.First)
		written += n
		if err != nil {
			return written, fmt.Errorf("settle %s: %w", days.First.Format(time.DateOnly), err)
		}
	}
	return written, nil
}

// settleDay settles one day, in slices: what was done before by a run that did not end is found done.
func (l *Ledger) settleDay(ctx context.Context, f stock.Fence, day time.Time) (int64, error) {
	var written, after int64
	for {
		var slice dbsqlc.SettleItemsRow
		err := l.guarded(ctx, f, func(q *dbsqlc.Queries) (err error) {
			slice, err = q.SettleItems(ctx, dbsqlc.SettleItemsParams{Day: day, AfterID: after, RowLimit: settleSlice})
			if err != nil {
				return readError(err)
			}
			return nil
		})
		if err != nil {
			return written, err
		}
		written += slice.Settled
		if slice.LastID == 0 {
			break
		}
		after = slice.LastID
	}
	return written, l.guarded(ctx, f, func(q *dbsqlc.Queries) error {
		if _, err := q.CloseDay(ctx, dbsqlc.CloseDayParams{Day: day, Token: int64(f.Token)}); err != nil {
			return readError(err)
		}
		return nil
	})
}

// Settlements reads a page of a day's settlements; [stock.ErrNotFound] when the day is not settled.
func (l *Ledger) Settlements(ctx context.Context, q stock.SettlementQuery) (*stock.SettlementPage, error) {
	day, err := l.reads.GetSettledDay(ctx, q.Day)
	if err != nil {
		return nil, readError(err)
	}
	arg := dbsqlc.ListSettlementsParams{Day: q.Day, AfterID: q.After, RowLimit: int32(q.Limit)}
	if q.Location != nil {
		arg.Location = string(*q.Location)
	}
	rows, err := l.reads.ListSettlements(ctx, arg)
	if err != nil {
		return nil, readError(err)
	}
	page := &stock.SettlementPage{Day: day.Day, SettledAt: day.SettledAt, Settlements: make([]stock.Settlement, len(rows))}
	for i := range rows {
		page.Settlements[i] = settlementOf(&rows[i])
	}
	if len(rows) == q.Limit {
		page.Next = rows[len(rows)-1].ItemID
	}
	return page, nil
}

func settlementOf(r *dbsqlc.ListSettlementsRow) stock.Settlement {
	return stock.Settlement{
		Item: stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)}, Version: r.Version,
		Opening: stock.Quantity(r.Opening), Closing: stock.Quantity(r.Closing),
		Moved: movedOf(r.Received, r.Deducted, r.Returned, r.Adjusted),
	}
}

func movedOf(received, deducted, returned, adjusted int64) stock.Moved {
	return stock.Moved{
		Received: stock.Quantity(received), Deducted: stock.Quantity(deducted),
		Returned: stock.Quantity(returned), Adjusted: stock.Quantity(adjusted),
	}
}
