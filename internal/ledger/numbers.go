package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/number"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// deductionSeries is the counter of the deductions' numbers.
const deductionSeries = "deduction"

// workerSpan is how long a leased worker may give out numbers before it asks again, in milliseconds.
const workerSpan = 60_000

// numberSource gives the numbers that the configuration asks for.
func (l *Ledger) numberSource() (number.Source, error) {
	switch {
	case !l.cfg.Snowflakes:
		return number.NewSegments(l.drawNumbers), nil
	case l.cfg.Worker == 0:
		return number.NewSnowflake(l.leaseWorker(rand.Text())), nil
	}
	lease, err := number.Worker(l.cfg.Worker)
	return number.NewSnowflake(lease), err
}

// drawNumbers is a [number.Draw].
func (l *Ledger) drawNumbers(ctx context.Context, n int64) (int64, error) {
	return l.reads.DrawNumbers(ctx, dbsqlc.DrawNumbersParams{Name: deductionSeries, Count: n})
}

// leaseWorker makes a [number.Lease] for one owner.
func (l *Ledger) leaseWorker(owner string) number.Lease {
	return func(ctx context.Context, now int64) (number.Span, error) {
		row, err := l.reads.LeaseWorker(ctx, dbsqlc.LeaseWorkerParams{Owner: owner, NowMs: now, SpanMs: workerSpan})
		if errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("all %d workers are taken", number.Workers)
		}
		return number.Span{Worker: int(row.Worker), From: row.FromMs, Until: row.UntilMs}, err
	}
}

// numberFor takes the number of a new deduction. It is taken before the deduction is decided, so one that is refused
// leaves a gap, and a batch that is sent again has the same numbers.
func (l *Ledger) numberFor(ctx context.Context) (int64, error) {
	n, err := l.numbers.Next(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", stock.ErrLedgerUnavailable, err)
	}
	return n, nil
}

// renumber gives the new deductions of a batch other numbers: the ledger has one of them already. That happens when
// the counter was set back by a failover or a restored backup and another instance drew the same block again; what is
// left of ours is no better.
func (l *Ledger) renumber(batch []*request, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if s, ok := l.numbers.(*number.Segments); ok {
		s.Discard()
	}
	for _, r := range batch {
		op, ok := r.op.(*deduct)
		if !ok {
			continue
		}
		n, err := l.numberFor(ctx)
		if err != nil {
			return err
		}
		op.number = n
	}
	return nil
}
