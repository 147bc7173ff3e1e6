package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/number"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Config of a [Ledger]. Zero values take the defaults named with each field.
type Config struct {
	URL      string        // of the Postgres database
	Writers  int           // sessions that write batches; 2. More only make batches smaller
	Readers  int           // sessions that answer reads; 8
	Patience time.Duration // how long one batch is tried before its callers are told; 4 s
	// Snowflakes numbers deductions by time and worker, not by blocks of a counter; see [number]. Worker is this
	// process's where an operator numbers them, from 1 to [number.Workers] - 1; 0: leased from the ledger.
	Snowflakes bool
	Worker     int
	// Seen is told the figures of every item a batch changed or read, right after the commit and before any
	// caller is answered. It must not block.
	Seen       func([]stock.Levels)
	Counted    func([]stock.CustomerUnits) // is told in the same way what customers have
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept but shown to nobody
}

// Ledger is the authority on stock.
type Ledger struct {
	cfg        Config
	log        *slog.Logger
	metrics    *metrics
	connConfig *pgx.ConnConfig
	pool       *pgxpool.Pool // for reads
	losses     *losses
	reads      *dbsqlc.Queries
	memory     *memory
	sequencer  *sequencer // of batches
	recalls    *sequencer // of look-ups by key
	numbers    number.Source
	workers    sync.WaitGroup
	stop       chan struct{} // closed by Close: nobody pauses any more
}

// Open starts a ledger on a migrated database. The database need not be reachable yet; see [Ledger.Ready].
func Open(cfg Config) (*Ledger, error) {
	cfg.Writers = cmp.Or(cfg.Writers, 2)
	cfg.Readers = cmp.Or(cfg.Readers, 8)
	cfg.Patience = cmp.Or(cfg.Patience, 4*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	connConfig, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	lost := new(losses)
	pool, err := readPool(cfg, lost)
	if err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Registerer)
	l := &Ledger{
		cfg: cfg, log: cfg.Log, metrics: m, connConfig: connConfig, pool: pool, losses: lost,
		reads: dbsqlc.New(defect.SQL(pool)), memory: newMemory(), sequencer: newSequencer(m), recalls: newSequencer(m), stop: make(chan struct{}),
	}
	if l.numbers, err = l.numberSource(); err != nil {
		pool.Close()
		return nil, err
	}
	for range cfg.Writers {
		w := &writer{ledger: l}
		l.workers.Go(w.run)
	}
	for range recallers {
		l.workers.Go(l.runRecalls)
	}
	return l, nil
}

func readPool(cfg Config, lost *losses) (*pgxpool.Pool, error) {
	poolConfig, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	poolConfig.MaxConns = int32(cfg.Readers)
	poolConfig.ConnConfig.ConnectTimeout = 2 * time.Second
	for _, name := range []string{
		"enable_seqscan", "jit", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout",
	} {
		poolConfig.ConnConfig.RuntimeParams[name] = sessionSettings[name]
	}
	poolConfig.ConnConfig.RuntimeParams["application_name"] = "holdfast-reads"
	poolConfig.BeforeClose = func(*pgx.Conn) { lost.note() }
	poolConfig.ShouldPing = func(_ context.Context, idle pgxpool.ShouldPingParams) bool {
		return idle.IdleDuration > time.Second || lost.since(idle.IdleDuration)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), poolConfig)
	if err != nil {
		return nil, fmt.Errorf("database pool: %w", err)
	}
	return pool, nil
}

// Close refuses new operations, finishes those that wait and ends every session.
func (l *Ledger) Close() {
	l.sequencer.close()
	l.recalls.close()
	close(l.stop)
	l.workers.Wait()
	l.numbers.Close()
	l.pool.Close()
}

// pause waits between attempts on a database that is out of reach; false when the ledger is being closed, which
// does not wait for it to come back.
func (l *Ledger) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.stop:
		return false
	}
}

// do sends an operation through the sequencer.
func (l *Ledger) do(ctx context.Context, op operation) result {
	r, err := l.sequencer.submit(op)
	if err != nil {
		return refuse(err)
	}
	return l.sequencer.wait(ctx, r)
}

// Deduct takes stock for an order, or holds it: all lines or none. The same key and input again is answered
// with what the deduction is now, Replayed.
func (l *Ledger) Deduct(ctx context.Context, r *stock.DeductRequest) (*stock.Outcome, error) {
	done := l.DeductAll(ctx, []*stock.DeductRequest{r})[0]
	return done.Outcome, done.Err
}

// DeductAll is [Ledger.Deduct] for many requests, each for itself, which enter the queue together, in their order.
func (l *Ledger) DeductAll(ctx context.Context, all []*stock.DeductRequest) []stock.DeductResult {
	ops, results := make([]operation, len(all)), make([]stock.DeductResult, len(all))
	for i, r := range all {
		op := newDeduct(r, uuid.Must(uuid.NewV7())) // it fails only without a source of randomness
		if op.number, results[i].Err = l.numberFor(ctx); results[i].Err != nil {
			return allFailed(results, results[i].Err)
		}
		ops[i] = op
	}
	answers := l.doAll(ctx, l.sequencer, ops)
	for i := range answers {
		var live *stock.OrderError
		if answers[i].err != nil && errors.As(answers[i].err, &live) && l.endedMeanwhile(ctx, live.ID) {
			answers[i] = l.do(ctx, ops[i])
		}
	}
	l.finishAll(ctx, all, answers, results)
	for i := range results {
		if out := results[i].Outcome; out != nil && out.Deduction.ID == ops[i].(*deduct).id {
			out.Replayed = false // an earlier sending of this same request did it
		}
	}
	return results
}

func allFailed(results []stock.DeductResult, err error) []stock.DeductResult {
	for i := range results {
		results[i].Err = err
	}
	return results
}

// doAll sends operations through a sequencer together.
func (l *Ledger) doAll(ctx context.Context, s *sequencer, ops []operation) []result {
	requests := s.submitAll(ops)
	results := make([]result, len(ops))
	for i, r := range requests {
		results[i] = s.wait(ctx, r)
	}
	return results
}

// Source finds the locations of lines that may be taken from all that have the SKU, at most [stock.MaxLocations] each:
// those that have some of it first, then by name. It is done once, before anything else is done with the request.
func (l *Ledger) Source(ctx context.Context, all ...*stock.DeductRequest) error {
	for _, r := range all {
		for i := range r.Lines {
			if s := r.Lines[i].Sourcing; s != nil && len(s.Locations) == 0 {
				if err := l.source(ctx, r.Lines[i].Item.SKU, s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (l *Ledger) source(ctx context.Context, sku stock.SKU, s *stock.Sourcing) error {
	arg := dbsqlc.ListSourcesParams{Sku: string(sku), RowLimit: stock.MaxLocations}
	for _, location := range s.Within {
		arg.Within = append(arg.Within, string(location))
	}
	found, err := l.reads.ListSources(ctx, arg)
	if err != nil {
		return readError(err)
	}
	s.Found = nil
	for _, location := range found {
		s.Found = append(s.Found, stock.Location(location))
	}
	return nil
}

// endedMeanwhile reports whether a deduction that stands in the way is a hold whose time is over, after
// making that so.
func (l *Ledger) endedMeanwhile(ctx context.Context, id uuid.UUID) bool {
	d, err := l.read(ctx, id)
	if err != nil || d.State != stock.Expired {
		return false
	}
	out, err := l.Expire(ctx, id, stock.Fence{})
	return err == nil && !out.Deduction.State.Live()
}

// Recall answers whether a deduction was made before under the request's key, or another one for its order:
// nil and no error when neither. It does not wait for a request that is on its way.
func (l *Ledger) Recall(ctx context.Context, r *stock.DeductRequest) (*stock.Outcome, error) {
	done := l.RecallAll(ctx, []*stock.DeductRequest{r})[0]
	return done.Outcome, done.Err
}

// RecallAll is [Ledger.Recall] for many requests, with one reading.
func (l *Ledger) RecallAll(ctx context.Context, all []*stock.DeductRequest) []stock.DeductResult {
	ops, results := make([]operation, len(all)), make([]stock.DeductResult, len(all))
	for i, r := range all {
		ops[i] = recall{newDeduct(r, uuid.UUID{})}
	}
	l.finishAll(ctx, all, l.doAll(ctx, l.recalls, ops), results)
	return results
}

// RehearseDeduct answers what [Ledger.Deduct] would answer now, and does nothing. A key that was used is answered
// with what it did, Replayed.
func (l *Ledger) RehearseDeduct(ctx context.Context, r *stock.DeductRequest) (*stock.Outcome, error) {
	op := rehearsal{newDeduct(r, uuid.UUID{})}
	res := l.doAll(ctx, l.recalls, []operation{op})[0]
	var live *stock.OrderError
	if errors.As(res.err, &live) && l.endedMeanwhile(ctx, live.ID) {
		res = l.doAll(ctx, l.recalls, []operation{op})[0]
	}
	return l.finish(ctx, r.Client, res)
}

// RehearseAdjust answers what [Ledger.Adjust] would answer now, and does nothing.
func (l *Ledger) RehearseAdjust(ctx context.Context, r *stock.AdjustRequest) (*stock.Adjustment, error) {
	op := rehearsal{newAdjust(r)}
	return l.adjusted(ctx, l.doAll(ctx, l.recalls, []operation{op})[0])
}

// Commit takes what a deduction holds: [stock.ErrHoldExpired] when its time is over, [stock.ErrWrongState]
// when it holds nothing. A retry finds it done and is answered with what it is now, Replayed.
func (l *Ledger) Commit(ctx context.Context, r *stock.CommitRequest) (*stock.Outcome, error) {
	return l.change(ctx, r.Client, r.ID, func(on onDeduction) operation { return newCommit(on, r) })
}

// Release gives back what a deduction holds; one that holds nothing any more is left as it is, Replayed.
func (l *Ledger) Release(ctx context.Context, r *stock.ReleaseRequest) (*stock.Outcome, error) {
	return l.change(ctx, r.Client, r.ID, func(on onDeduction) operation { return &release{on} })
}

// Extend moves a hold's expiry.
func (l *Ledger) Extend(ctx context.Context, r *stock.ExtendRequest) (*stock.Outcome, error) {
	return l.change(ctx, r.Client, r.ID, func(on onDeduction) operation {
		return &extend{onDeduction: on, hold: r.Hold, reacquire: r.Reacquire}
	})
}

// Return books goods that came back.
func (l *Ledger) Return(ctx context.Context, r *stock.ReturnRequest) (*stock.Outcome, error) {
	return l.change(ctx, r.Client, r.ID, func(on onDeduction) operation {
		return &giveIn{onDeduction: on, ReturnRequest: r, fingerprint: r.Fingerprint()}
	})
}

// Expire ends a hold whose time is over by the ledger's clock; any other deduction is left as it is. Under a fence it
// is [stock.ErrStale] for all but the newest holder; without, the zero one, anybody may.
func (l *Ledger) Expire(ctx context.Context, id uuid.UUID, f stock.Fence) (*stock.Outcome, error) {
	return l.change(ctx, "", id, func(on onDeduction) operation { return &expire{on, f} })
}

// change sends an operation on an existing deduction through the sequencer. An empty client may change any.
func (l *Ledger) change(ctx context.Context, client string, id uuid.UUID, make func(onDeduction) operation) (*stock.Outcome, error) {
	d, err := l.readRaw(ctx, id)
	if err != nil {
		return nil, err
	}
	if client != "" && d.Client != client {
		return nil, stock.ErrNotFound
	}
	return l.finish(ctx, d.Client, l.do(ctx, make(newOnDeduction(d.Client, d))))
}

// Adjust changes what is physically there.
func (l *Ledger) Adjust(ctx context.Context, r *stock.AdjustRequest) (*stock.Adjustment, error) {
	return l.adjusted(ctx, l.do(ctx, newAdjust(r)))
}

// finish turns a result into the caller's answer.
func (l *Ledger) finish(ctx context.Context, client string, res result) (*stock.Outcome, error) {
	if res.replay == nil {
		return res.outcome, res.err
	}
	out, err := l.Deduction(ctx, client, res.replay.deduction)
	if err != nil {
		return nil, doneButNotRead(err)
	}
	out.Replayed = !res.own
	return out, nil
}

// finishAll is finish for many requests: what was done before is read together.
func (l *Ledger) finishAll(ctx context.Context, all []*stock.DeductRequest, answers []result, into []stock.DeductResult) {
	var ids []uuid.UUID
	for i := range answers {
		if answers[i].replay != nil {
			ids = append(ids, answers[i].replay.deduction)
		}
	}
	found, err := l.outcomes(ctx, ids)
	for i := range answers {
		into[i] = stock.DeductResult{Outcome: answers[i].outcome, Err: answers[i].err}
		if answers[i].replay == nil {
			continue
		}
		if err != nil {
			into[i].Err = doneButNotRead(err)
			continue
		}
		out, ok := found[answers[i].replay.deduction]
		if !ok || out.Deduction.Client != all[i].Client {
			into[i].Err = doneButNotRead(stock.ErrNotFound)
			continue
		}
		out.Replayed = true
		into[i].Outcome = &out
	}
}
