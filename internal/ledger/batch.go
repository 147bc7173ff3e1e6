package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// reading is what a batch is decided on.
type reading int

const (
	fromMemory reading = iota // last known rows; may only grant
	justRead                  // rows read just now
	locked                    // the same, locked until the write commits
)

// basis is what an attempt rests on. Keys and orders are looked up only where one is expected to be found, or
// something is to be refused: a grant is proved by the unique indexes.
type basis struct {
	rows  reading
	names bool
}

// What an attempt to carry out a batch can come to, besides done and a broken connection.
var (
	errNotAsSeen = errors.New("a row changed since it was read")
	errUsed      = errors.New("a key or an order of the batch was used meanwhile")
	errNeedsRead = errors.New("a verdict of the batch needs rows just read")

	errNumberTaken = errors.New("a number of the batch was given out before")

	// errUnconfirmed: committed here, but the server did not wait for its standby. Sending again would find
	// it and call it done, so only the caller's retry may.
	errUnconfirmed = fmt.Errorf("%w: committed without its standby", stock.ErrUnknownOutcome)
)

// writer carries out batches on a connection of its own.
type writer struct {
	ledger *Ledger
	conn   *connection // nil while there is none
	params dbsqlc.WriteBatchParams
}

// run carries out batches until the sequencer is closed and empty.
func (w *writer) run() {
	var batch []*request
	for {
		var ok bool
		if batch, ok = w.ledger.sequencer.take(batch); !ok {
			w.disconnect()
			return
		}
		w.carryOut(batch)
	}
}

// carryOut answers every request of the batch, whatever happens.
func (w *writer) carryOut(batch []*request) {
	m := w.ledger.metrics
	start := time.Now()
	m.batchSize.Observe(float64(len(batch)))
	m.queueWait.Observe(start.Sub(batch[0].queued).Seconds())
	results, err := w.settle(batch, start.Add(w.ledger.cfg.Patience))
	if err != nil && len(batch) > 1 && !expected(err) {
		// One of them broke a rule that the decision should have kept: find it, spare the others.
		w.ledger.log.Error("batch refused by the database, sending its requests one by one", "requests", len(batch), "error", err)
		for _, r := range batch {
			w.carryOut([]*request{r})
		}
		return
	}
	m.batchTime.Observe(time.Since(start).Seconds())
	for i, r := range batch {
		if err != nil {
			r.done <- refuse(err)
			continue
		}
		r.done <- results[i]
	}
}

// settle tries until the batch is decided and durable, or until there is no point or no time left. Its error
// is the answer to every request of the batch.
func (w *writer) settle(batch []*request, deadline time.Time) ([]result, error) {
	l := w.ledger
	v := newView(len(batch), &w.params)
	on := l.memory.fill(v, batch, time.Now())
	if slices.ContainsFunc(batch, func(r *request) bool { return r.fenced }) {
		on = basis{locked, true} // a fence is compared in the transaction that writes
	}
	maybe := false    // a write was sent and its outcome never seen
	var sent []result // what it would have come to
	var decided map[stock.Item]*itemRow
	pause := 10 * time.Millisecond
	for {
		results, err := w.attempt(v, batch, on, decided, deadline)
		decided = nil
		switch {
		case err == nil:
			claim(results, sent)
			return results, nil
		case errors.Is(err, errNeedsRead):
			if on.rows == locked {
				l.memory.suspect(time.Now()) // more refusals will follow: look first
			}
			on = basis{max(on.rows, justRead), true}
			v = newView(len(batch), &w.params)
			continue
		case errors.Is(err, errNotAsSeen):
			l.metrics.conflicts.Inc()
			decided, on.rows = v.items, locked
		case errors.Is(err, errUsed):
			l.metrics.duplicates.Inc()
			l.memory.suspect(time.Now())
			on = basis{max(on.rows, justRead), true}
		case errors.Is(err, errNumberTaken):
			l.log.Warn("a number was given out before: the counter was set back", "requests", len(batch))
			if err := l.renumber(batch, deadline); err != nil {
				return nil, err
			}
			on.rows = max(on.rows, justRead)
		case errors.Is(err, errUnconfirmed):
			return nil, err
		case errors.Is(err, stock.ErrUnknownOutcome):
			// Sent again on rows that are locked, it waits for whatever became of the first sending.
			l.metrics.unknown.Inc()
			sent = results
			maybe, on = true, basis{locked, !defect.On(defect.DoubleApply)}
		case !isOutage(err):
			return nil, err
		}
		if !time.Now().Add(pause).Before(deadline) {
			return nil, giveUp(err, maybe)
		}
		if isOutage(err) {
			if !w.ledger.pause(pause) {
				return nil, giveUp(err, maybe)
			}
			pause = min(2*pause, 250*time.Millisecond)
			on.rows = max(on.rows, justRead)
		}
		v = newView(len(batch), &w.params)
	}
}

// giveUp names what the callers of a batch must be told when its time is over.
func giveUp(err error, maybe bool) error {
	switch {
	case maybe && !defect.On(defect.ReleaseOnUnknown):
		return stock.ErrUnknownOutcome
	case isOutage(err):
		return fmt.Errorf("%w: %w", stock.ErrLedgerUnavailable, err)
	}
	return stock.ErrOverloaded
}

// attempt decides the batch once and, if anything is granted, writes it. With an unknown outcome come the results that
// were sent.
func (w *writer) attempt(v *view, batch []*request, on basis, decided map[stock.Item]*itemRow, deadline time.Time) ([]result, error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	if on.rows == fromMemory {
		if v.ofAnotherEpoch(w.conn.epoch) {
			return nil, errNeedsRead
		}
		results, err := decideAll(v, batch)
		if err != nil {
			return nil, err
		}
		return w.commit(ctx, w.conn.queries, nil, v, batch, results)
	}
	queries, tx := w.conn.queries, pgx.Tx(nil)
	if on.rows == locked {
		var err error
		if tx, err = w.conn.conn.Begin(ctx); err != nil {
			return nil, w.broken(err, false)
		}
		defer w.rollBack(tx)
		queries = dbsqlc.New(defect.SQL(tx))
	}
	if err := readBasis(ctx, queries, v, batch, on); err != nil {
		return nil, w.broken(err, false)
	}
	defect.Reach(defect.RowsRead)
	if decided != nil {
		w.ledger.memory.contended(decided, v.items, time.Now())
	}
	results, err := decideAll(v, batch)
	if err != nil {
		return nil, err
	}
	return w.commit(ctx, queries, tx, v, batch, results)
}

// lost reports whether one of the deductions was there when it was looked at and is no more: a failover took it.
func (v *view) lost(about []*deductionRow) bool {
	for _, d := range about {
		if v.deductions[d.ID] == nil {
			return true
		}
	}
	return false
}

// decideAll is the pure heart: first come, first served.
func decideAll(v *view, batch []*request) ([]result, error) {
	results := make([]result, len(batch))
	for i, r := range batch {
		if !v.proves() && r.counts() {
			return nil, errNeedsRead // nobody remembers what customers have
		}
		if v.lost(r.about) {
			results[i] = refuse(stock.ErrNotFound)
			continue
		}
		results[i] = r.op.decide(v)
		if results[i].err != nil && !v.proves() && !results[i].certain || results[i].needsProof() && !v.fresh {
			return nil, errNeedsRead
		}
	}
	return results, nil
}

// commit writes what was decided, makes it durable, and only then lets anybody know. Its results are certain only
// without an error.
func (w *writer) commit(ctx context.Context, q *dbsqlc.Queries, tx pgx.Tx, v *view, batch []*request, results []result) ([]result, error) {
	l := w.ledger
	if !v.seal() {
		if v.fresh {
			l.learned(v.rows(), w.conn.epoch)
			l.counted(v, w.conn.epoch)
		}
		return results, nil
	}
	defect.Reach(defect.BeforeWrite)
	w.conn.warned.Store(false)
	start := time.Now()
	asSeen, at, err := write(ctx, q, v, batch)
	if err != nil {
		return results, w.broken(err, true)
	}
	if !asSeen {
		return nil, errNotAsSeen
	}
	defect.Reach(defect.Written)
	if tx != nil {
		if err := tx.Commit(ctx); err != nil {
			return results, w.broken(err, true)
		}
	}
	if w.conn.warned.Load() {
		// The server said something beside its answer: a commit that did not wait for its standby. It is
		// here, but not where it was promised to be.
		return nil, errUnconfirmed
	}
	defect.Reach(defect.Committed)
	l.metrics.commitTime.Observe(time.Since(start).Seconds())
	for i := range results {
		results[i].stamp(at)
	}
	l.learned(v.rows(), w.conn.epoch)
	l.counted(v, w.conn.epoch)
	return results, nil
}

// write sends the batch, by the cheapest statement that can carry it.
func write(ctx context.Context, q *dbsqlc.Queries, v *view, batch []*request) (asSeen bool, at time.Time, err error) {
	if one, ok := v.single(batch); ok {
		row, err := q.WriteOne(ctx, one)
		return row.AsSeen, row.At, err
	}
	if rush, ok := v.rush(); ok {
		row, err := q.WriteDeducts(ctx, rush)
		return row.AsSeen, row.At, err
	}
	row, err := q.WriteBatch(ctx, *v.write)
	return row.AsSeen, row.At, err
}

// readBasis fills the view with everything the batch may rest on, as it is committed now. Rows are read before
// keys: whoever sees a row after a deduction then also sees the deduction's key.
func readBasis(ctx context.Context, q *dbsqlc.Queries, v *view, batch []*request, on basis) error {
	v.fresh, v.named = true, on.names
	clear(v.items) // what was remembered and is no more
	clear(v.deductions)
	needs := needsOf(batch)
	if err := readFences(ctx, q, v, needs.fences); err != nil {
		return err
	}
	if err := readItems(ctx, q, v, needs.items, on.rows); err != nil {
		return err
	}
	if err := readDeductions(ctx, q, v, needs.deductions, on.rows); err != nil {
		return err
	}
	if !on.names {
		return nil
	}
	return readNames(ctx, q, v, needs)
}

// needs are the distinct things a batch is about.
type needs struct {
	items      []stock.Item
	keys       []stock.Keyed
	orders     []orderPart
	deductions []uuid.UUID
	fences     []string
	units      []possession
}

func needsOf(batch []*request) needs {
	var n needs
	seen := make(map[stock.Item]bool)
	for _, r := range batch {
		for _, item := range r.items {
			if !seen[item] {
				seen[item] = true
				n.items = append(n.items, item)
			}
		}
		names := r.op.names()
		n.units = append(n.units, names.possessions(r.items)...)
		if names.key.Key != "" {
			n.keys = append(n.keys, names.key)
		}
		if names.order.order != "" {
			n.orders = append(n.orders, names.order)
		}
		for _, d := range names.deductions {
			n.deductions = append(n.deductions, d.ID)
		}
		if key := names.fence.Key; key != "" && !slices.Contains(n.fences, key) {
			n.fences = append(n.fences, key)
		}
	}
	return n
}

// rollBack ends a transaction that was not committed; after a commit it does nothing.
func (w *writer) rollBack(tx pgx.Tx) {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		w.ledger.log.Debug("roll back", slog.Any("error", err))
		w.disconnect()
	}
}
