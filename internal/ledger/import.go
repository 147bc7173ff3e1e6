package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// importPart is how many rows of an import have their items made by one statement: two batches of movements, so that
	// two sessions can write them.
	importPart = 2 * maxBatchRequests

	// MaxImport is how many rows one call of [Ledger.Import] should have: so many parts that there is a next one most of
	// the time.
	MaxImport = 4 * importPart
)

// Import does many rows, each by itself, and answers all of them in order. Items and settings come first, with one
// statement for a part of the rows; movements then go through the sequencer like any other, under keys of their own, so
// that a row that was done before is found, and while they do, the next part has its items made. Rows wait for room in the
// sequencer as long as ctx allows.
func (l *Ledger) Import(ctx context.Context, client string, rows []stock.ImportRow) []stock.Imported {
	done := make([]stock.Imported, len(rows))
	made := make(chan int, 1) // how many rows have their items
	go func() {
		defer close(made)
		for from := 0; from < len(rows); from += importPart {
			to := min(from+importPart, len(rows))
			if err := l.importItems(ctx, client, rows[from:to], done[from:to]); err != nil {
				for i := range done[from:] {
					done[from+i].Err = err
				}
				return
			}
			made <- to
		}
	}()
	from := 0
	for to := range made {
		l.importMovements(ctx, rows[from:to], done[from:to])
		l.importFigures(ctx, rows[from:to], done[from:to])
		from = to
	}
	return done
}

// importItems creates what may be created and changes settings. Of several rows about one item the last word counts, and
// what became of it is the first one's.
func (l *Ledger) importItems(ctx context.Context, client string, rows []stock.ImportRow, done []stock.Imported) error {
	arg := dbsqlc.ImportItemsParams{Actor: client}
	places := make(map[stock.Item]int)
	first := make(map[stock.Item]int)
	for i := range rows {
		r := &rows[i]
		settings := r.SafetyStock != nil || r.LowStockAt != nil || r.Label != nil
		if !settings && (!r.Create || l.memory.knows(r.Item)) {
			continue
		}
		at, ok := places[r.Item]
		if !ok {
			at = len(places)
			places[r.Item], first[r.Item] = at, i
			arg.Skus, arg.Locations = append(arg.Skus, string(r.Item.SKU)), append(arg.Locations, string(r.Item.Location))
			arg.MayCreate, arg.SafetyStocks, arg.LowStockAts = append(arg.MayCreate, false), append(arg.SafetyStocks, -1), append(arg.LowStockAts, -1)
			arg.Labelled, arg.Labels = append(arg.Labelled, false), append(arg.Labels, "")
		}
		arg.MayCreate[at] = arg.MayCreate[at] || r.Create
		if r.SafetyStock != nil {
			arg.SafetyStocks[at] = int64(*r.SafetyStock)
		}
		if r.LowStockAt != nil {
			arg.LowStockAts[at] = int64(*r.LowStockAt)
		}
		if r.Label != nil {
			arg.Labelled[at], arg.Labels[at] = true, *r.Label
		}
	}
	if len(places) == 0 {
		return nil
	}
	found, err := l.reads.ImportItems(ctx, arg)
	if err != nil {
		return writeError(err)
	}
	epoch, err := l.reads.ReadEpoch(ctx)
	if err != nil {
		return doneButNotRead(err)
	}
	learned := make([]*itemRow, len(found))
	for i := range found {
		learned[i] = importedItem(&found[i])
		of := &done[first[learned[i].levels.Item]]
		of.Created, of.Configured = found[i].Created, !found[i].Created
	}
	l.learned(learned, uint32(epoch))
	return nil
}

func importedItem(r *dbsqlc.ImportItemsRow) *itemRow {
	return &itemRow{id: r.ID, seen: r.Version, lowAt: lowMark(r.LowStockAt), levels: stock.Levels{
		Item:   stock.Item{SKU: stock.SKU(r.Sku), Location: stock.Location(r.Location)},
		OnHand: stock.Quantity(r.OnHand), Held: stock.Quantity(r.Held), SafetyStock: stock.Quantity(r.SafetyStock), Version: r.Version,
	}}
}

// importMovements sends the rows' adjustments through the sequencer, those for which there is no room once more after
// a moment.
func (l *Ledger) importMovements(ctx context.Context, rows []stock.ImportRow, done []stock.Imported) {
	var ops []operation
	var of []*stock.Imported
	for i := range rows {
		if adjust := rows[i].Adjust; adjust != nil {
			ops, of = append(ops, newAdjust(adjust)), append(of, &done[i])
		}
	}
	for len(ops) > 0 {
		left := 0
		for i, r := range l.sequencer.submitAll(ops) {
			moved(of[i], l.sequencer.wait(ctx, r))
			if errors.Is(of[i].Err, stock.ErrOverloaded) {
				ops[left], of[left] = ops[i], of[i]
				left++
			}
		}
		ops, of = ops[:left], of[:left]
		if left > 0 && (ctx.Err() != nil || !l.pause(10*time.Millisecond)) {
			return
		}
	}
}

// moved takes in what the sequencer answered to a row.
func moved(to *stock.Imported, r result) {
	to.Err = r.err
	switch {
	case r.adjustment != nil:
		to.Moved, to.Levels = true, r.adjustment.Levels
	case r.replay != nil:
		to.Moved, to.Replayed = r.own, !r.own
	}
}

// importFigures reads the figures for rows that have none from a movement. One whose item is not there is refused.
func (l *Ledger) importFigures(ctx context.Context, rows []stock.ImportRow, done []stock.Imported) {
	var missing []stock.Item
	for i := range done {
		if done[i].Levels.SKU == "" {
			missing = append(missing, rows[i].Item)
		}
	}
	if len(missing) == 0 {
		return
	}
	levels, err := l.Levels(ctx, missing)
	byItem := make(map[stock.Item]stock.Levels, len(levels))
	for _, level := range levels {
		byItem[level.Item] = level
	}
	for i := range done {
		level, found := byItem[rows[i].Item]
		switch d := &done[i]; {
		case d.Levels.SKU != "":
		case found:
			d.Levels = level
		case d.Err == nil && err != nil:
			d.Err = doneButNotRead(err)
		case d.Err == nil:
			d.Err = &stock.UnknownItemError{Lines: []stock.UnknownLine{{Item: rows[i].Item}}}
		}
	}
}
