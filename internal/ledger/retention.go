package ledger

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// retentionScan and retentionRows bound one step of retention, so that it is over in a fraction of a second:
	// items looked at, and movements rolled up.
	retentionScan = 500
	retentionRows = 5_000
	// retentionLeast is what a step must have left of retentionRows to begin another item.
	retentionLeast = 100
	// retentionLock is the key of the advisory lock that makes steps take turns: "retain" in ASCII.
	retentionLock = 0x72657461696e
)

// Retention rolls movements from before a moment up into one checkpoint an item. The checkpoint has the version of the
// last movement it stands for and the sums of their deltas, so on hand and held remain the sums of what is there at
// every moment. Keys, deductions and their lines stay: a retry is answered years later as on the first day,
// except that an adjustment's movement is shown as the checkpoint that stands for it.
//
// It works in steps, each a transaction, which may be stopped and started again at any time, beside load and beside each
// other: movements are only ever appended, so nobody else touches old ones. With an archive, the movements are written to its
// file and synced before the transaction that deletes them commits; that transaction also notes how long the file is.
// What a step wrote that did not commit is cut off by the next one, so the archive has every movement once.
//
// What a settlement has still to look at stays, however old it is.
type Retention struct {
	ledger  *Ledger
	before  time.Time
	archive *Archive // nil: the movements are gone
	fence   stock.Fence
	after   int64 // the number of the last item that is done
}

// Retained is what one step did.
type Retained struct {
	Items     int // that got a checkpoint
	Movements int // that were rolled up
	Done      bool
}

// Retain prepares retention of movements from before a moment, which has to be past; nothing is done before
// [Retention.Step]. Under a fence its steps are [stock.ErrStale] for all but the newest holder.
func (l *Ledger) Retain(before time.Time, archive *Archive, f stock.Fence) *Retention {
	return &Retention{ledger: l, before: before, archive: archive, fence: f}
}

// Step does a bounded piece of the work. After an error it may be called again: what was done remains.
func (r *Retention) Step(ctx context.Context) (Retained, error) {
	s := retentionStep{Retention: r, after: r.after}
	err := r.ledger.guarded(ctx, r.fence, func(q *dbsqlc.Queries) error {
		s.queries = q
		return s.run(ctx)
	})
	if s.file != nil {
		_ = s.file.Close() // synced before, or not in force
	}
	if err != nil {
		return Retained{}, fmt.Errorf("retention: %w", err)
	}
	r.after = s.after
	return s.done, nil
}

// retentionStep is one step on its way: nothing of it counts before it commits.
type retentionStep struct {
	*Retention
	queries *dbsqlc.Queries
	bound   time.Time // before, or what settlements allow
	after   int64
	done    Retained
	lines   []byte   // for the archive
	file    *os.File // the archive's, once it was written to
}

func (s *retentionStep) run(ctx context.Context) error {
	if err := s.queries.LockRetention(ctx, retentionLock); err != nil {
		return readError(err)
	}
	bound, err := s.queries.BoundRetention(ctx, s.before)
	if err != nil {
		return readError(err)
	}
	s.bound = bound
	items, err := s.queries.ListItemsByAge(ctx, dbsqlc.ListItemsByAgeParams{
		Before: bound, AfterID: s.after, RowLimit: retentionScan,
	})
	if err != nil {
		return readError(err)
	}
	s.done.Done = len(items) < retentionScan
	for i := range items {
		if items[i].Old {
			whole, err := s.rollUp(ctx, &items[i])
			if err != nil {
				return err
			}
			if !whole {
				s.done.Done = false
				break
			}
		}
		s.after = items[i].ID
	}
	if s.archive == nil || s.done.Movements == 0 {
		return nil
	}
	s.file, err = s.archive.append(ctx, s.queries, s.lines, s.done.Movements)
	return err
}

// rollUp puts a checkpoint in the place of an item's old movements. It reports whether the item is done with, as opposed
// to the step being full.
func (s *retentionStep) rollUp(ctx context.Context, item *dbsqlc.ListItemsByAgeRow) (whole bool, err error) {
	room := retentionRows - s.done.Movements
	if room < retentionLeast {
		return false, nil
	}
	rows, err := s.queries.RollUpMovements(ctx, dbsqlc.RollUpMovementsParams{
		ItemID: item.ID, Before: s.bound, RowLimit: int32(room),
	})
	if err != nil {
		return false, readError(err)
	}
	if len(rows) == 0 {
		return true, nil
	}
	last := &rows[len(rows)-1]
	var onHand, held int64
	for i := range rows {
		onHand, held = onHand+rows[i].DeltaOnHand, held+rows[i].DeltaHeld
	}
	if onHand != last.OnHand || held != last.Held {
		return false, fmt.Errorf("item %d (%s at %s): its movements up to version %d come to %d on hand and %d held, the last one says %d and %d",
			item.ID, item.Sku, item.Location, last.Version, onHand, held, last.OnHand, last.Held)
	}
	for i := range rows {
		if rows[i].Kind == string(stock.Checkpoint) {
			continue // what it stands for was archived when it was made
		}
		s.done.Movements++
		if s.archive != nil {
			if s.lines, err = appendArchived(s.lines, item, &rows[i]); err != nil {
				return false, err
			}
		}
	}
	s.done.Items++
	err = s.queries.InsertCheckpoint(ctx, dbsqlc.InsertCheckpointParams{
		ItemID: item.ID, Version: last.Version, OnHand: onHand, Held: held, At: last.At,
		Reason: fmt.Sprintf("stands for versions 1 to %d", last.Version),
	})
	if err != nil {
		return false, readError(err)
	}
	return len(rows) < room, nil
}
