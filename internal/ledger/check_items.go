package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// maxChecked bounds the movements of one item that one statement adds up; a longer history takes several.
	maxChecked = 10_000
	// maxEvidence bounds the rows shown for one finding.
	maxEvidence = 20
)

// NumberedItem is an item and the id of its row, in whose order all items are walked over.
type NumberedItem struct {
	ID int64
	stock.Item
}

// ItemCheck is what a check of one item came to.
type ItemCheck struct {
	Levels    stock.Levels // as of the check
	Movements int64        // added up now
	More      bool         // there are more of them than one step adds up
	Findings  []stock.Finding
}

// ItemsAfter lists items in the order of their rows, from the first id above after.
func (l *Ledger) ItemsAfter(ctx context.Context, after int64, limit int) ([]NumberedItem, error) {
	rows, err := l.reads.ListItemIDs(ctx, dbsqlc.ListItemIDsParams{AfterID: after, RowLimit: int32(limit)})
	if err != nil {
		return nil, readError(err)
	}
	items := make([]NumberedItem, len(rows))
	for i := range rows {
		items[i] = NumberedItem{rows[i].ID, stock.Item{SKU: stock.SKU(rows[i].Sku), Location: stock.Location(rows[i].Location)}}
	}
	return items, nil
}

// Numbered finds the rows of items; those that do not exist are missing.
func (l *Ledger) Numbered(ctx context.Context, items []stock.Item) ([]NumberedItem, error) {
	v := newView(len(items), new(dbsqlc.WriteBatchParams))
	if err := readItems(ctx, l.reads, v, items, justRead); err != nil {
		return nil, readError(err)
	}
	found := make([]NumberedItem, 0, len(v.items))
	for item, row := range v.items {
		found = append(found, NumberedItem{row.id, item})
	}
	return found, nil
}

// CheckItems compares, as of one moment, the rows of items with their movements since the last check that found them right, and
// with what their open holds hold; and notes how far that was found right. Of one item at most [maxChecked] movements
// are added up: the next check goes on.
func (l *Ledger) CheckItems(ctx context.Context, items []NumberedItem) ([]ItemCheck, error) {
	from := make([]int64, len(items))
	for i := range items {
		from[i] = items[i].ID
	}
	var checks []ItemCheck
	var right []dbsqlc.CheckItemsRow
	err := l.snapshot(ctx, func(q *dbsqlc.Queries, epoch uint32) error {
		checked, err := q.ReadChecked(ctx, from)
		if err != nil {
			return err
		}
		known := make(map[int64]dbsqlc.CheckedItem, len(checked))
		for _, c := range checked {
			known[c.ItemID] = c
		}
		arg := dbsqlc.CheckItemsParams{MovementLimit: maxChecked}
		for _, id := range from {
			arg.ItemIds = append(arg.ItemIds, id)
			arg.Versions = append(arg.Versions, known[id].Version)
			arg.OnHand = append(arg.OnHand, known[id].OnHand)
			arg.Held = append(arg.Held, known[id].Held)
		}
		checks, right, err = checkItems(ctx, q, &arg, epoch)
		return err
	})
	if err != nil {
		return nil, readError(err)
	}
	return checks, l.rememberChecked(ctx, right)
}

// CheckItemsWhole is [Ledger.CheckItems] from each item's first movement, however many there are, and notes nothing.
func (l *Ledger) CheckItemsWhole(ctx context.Context, items []NumberedItem) ([]ItemCheck, error) {
	var checks []ItemCheck
	err := l.snapshot(ctx, func(q *dbsqlc.Queries, epoch uint32) error {
		for _, item := range items {
			check, err := checkHistory(ctx, q, item.ID, epoch)
			if err != nil {
				return err
			}
			checks = append(checks, check...)
		}
		return nil
	})
	if err != nil {
		return nil, readError(err)
	}
	return checks, nil
}

// checkHistory adds up all movements of one item, part by part. An item that is gone has no check.
func checkHistory(ctx context.Context, q *dbsqlc.Queries, id int64, epoch uint32) ([]ItemCheck, error) {
	arg := dbsqlc.CheckItemsParams{
		ItemIds: []int64{id}, Versions: []int64{0}, OnHand: []int64{0}, Held: []int64{0}, MovementLimit: maxChecked,
	}
	var movements int64
	for {
		part, right, err := checkItems(ctx, q, &arg, epoch)
		if err != nil || len(part) == 0 {
			return nil, err
		}
		part[0].Movements += movements
		if !part[0].More || len(right) == 0 {
			return part, nil
		}
		movements = part[0].Movements
		arg.Versions[0], arg.OnHand[0], arg.Held[0] = right[0].ToVersion, right[0].ToOnHand, right[0].ToHeld
	}
}

// snapshot has do read as of one moment, in the epoch of the server.
func (l *Ledger) snapshot(ctx context.Context, do func(*dbsqlc.Queries, uint32) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, l.pool, options, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		epoch, err := q.ReadEpoch(ctx)
		if err != nil {
			return err
		}
		return do(q, uint32(epoch))
	})
}

// checkItems also returns the rows of items about which nothing was found.
func checkItems(
	ctx context.Context, q *dbsqlc.Queries, arg *dbsqlc.CheckItemsParams, epoch uint32,
) (checks []ItemCheck, right []dbsqlc.CheckItemsRow, err error) {
	rows, err := q.CheckItems(ctx, *arg)
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		row := &rows[i]
		check := ItemCheck{Movements: row.Movements, More: row.Movements == maxChecked, Levels: stock.Levels{
			Item:   stock.Item{SKU: stock.SKU(row.Sku), Location: stock.Location(row.Location)},
			OnHand: stock.Quantity(row.OnHand), Held: stock.Quantity(row.Held), SafetyStock: stock.Quantity(row.SafetyStock),
			Version: row.Version, Epoch: epoch,
		}}
		if check.Findings, err = findings(ctx, q, &check, row); err != nil {
			return nil, nil, err
		}
		if len(check.Findings) == 0 {
			right = append(right, *row)
		}
		checks = append(checks, check)
	}
	return checks, right, nil
}

// findings about one item, with the rows that contradict each other.
func findings(ctx context.Context, q *dbsqlc.Queries, check *ItemCheck, row *dbsqlc.CheckItemsRow) ([]stock.Finding, error) {
	var found []stock.Finding
	add := func(rule stock.Rule, evidence ...string) {
		evidence = append([]string{itemEvidence(row)}, evidence...)
		found = append(found, stock.Finding{Rule: rule, Subject: check.Levels.Item.String(), Evidence: evidence})
	}
	if row.Held < 0 || row.Held > row.OnHand || row.OnHand > int64(stock.MaxOnHand) {
		add(stock.RuleFigures)
	}
	last := fmt.Sprintf("movements (item_id %d) up to version %d: on_hand %d, held %d", row.ID, row.ToVersion, row.ToOnHand, row.ToHeld)
	if !check.More && row.ToVersion != row.Version {
		add(stock.RuleVersions, last)
	}
	if !check.More && (row.ToOnHand != row.OnHand || row.ToHeld != row.Held) {
		add(stock.RuleSums, last)
	}
	for rule, at := range map[stock.Rule]int64{stock.RuleVersions: row.GapAt, stock.RuleSums: row.BrokenAt} {
		if at == 0 {
			continue
		}
		around, err := movementEvidence(ctx, q, row.ID, at)
		if err != nil {
			return nil, err
		}
		add(rule, around...)
	}
	if row.OpenHeld != row.Held {
		lines, err := holderEvidence(ctx, q, row)
		if err != nil {
			return nil, err
		}
		add(stock.RuleHolds, lines...)
	}
	return merged(found), nil
}

// merged makes one finding of those with one rule and subject.
func merged(found []stock.Finding) []stock.Finding {
	var all []stock.Finding
	at := make(map[stock.Rule]int)
	for _, f := range found {
		if i, ok := at[f.Rule]; ok {
			all[i].Evidence = append(all[i].Evidence, f.Evidence[1:]...)
			continue
		}
		at[f.Rule] = len(all)
		all = append(all, f)
	}
	return all
}

func itemEvidence(row *dbsqlc.CheckItemsRow) string {
	return fmt.Sprintf("items (id %d): on_hand %d, held %d, safety_stock %d, version %d",
		row.ID, row.OnHand, row.Held, row.SafetyStock, row.Version)
}

// movementEvidence shows the movement at a version and the two before it.
func movementEvidence(ctx context.Context, q *dbsqlc.Queries, id, version int64) ([]string, error) {
	rows, err := q.ReadMovements(ctx, dbsqlc.ReadMovementsParams{
		ItemID: id, Version: version, RowLimit: 3,
	})
	if err != nil {
		return nil, err
	}
	evidence := make([]string, len(rows))
	for i := range rows {
		m := &rows[len(rows)-1-i]
		evidence[i] = fmt.Sprintf("movements (item_id %d, version %d): %s, delta_on_hand %d, delta_held %d, on_hand %d, held %d, at %s",
			id, m.Version, m.Kind, m.DeltaOnHand, m.DeltaHeld, m.OnHand, m.Held, m.At.UTC().Format(time.RFC3339Nano))
	}
	return evidence, nil
}

// holderEvidence shows the lines that hold the item, those of deductions that are no holds too.
func holderEvidence(ctx context.Context, q *dbsqlc.Queries, row *dbsqlc.CheckItemsRow) ([]string, error) {
	rows, err := q.ListHolders(ctx, dbsqlc.ListHoldersParams{ItemID: row.ID, RowLimit: maxEvidence})
	if err != nil {
		return nil, err
	}
	evidence := []string{fmt.Sprintf("deduction_lines (item_id %d) of deductions that are held: held %d in sum", row.ID, row.OpenHeld)}
	for i := range rows {
		h := &rows[i]
		evidence = append(evidence, fmt.Sprintf("deduction_lines (deduction_id %s, line_no %d): held %d, of a deduction that is %s",
			h.ID, h.LineNo, h.Held, h.State))
	}
	return evidence, nil
}

func (l *Ledger) rememberChecked(ctx context.Context, right []dbsqlc.CheckItemsRow) error {
	var arg dbsqlc.RememberCheckedParams
	for i := range right {
		if row := &right[i]; row.Movements > 0 {
			arg.ItemIds = append(arg.ItemIds, row.ID)
			arg.Versions = append(arg.Versions, row.ToVersion)
			arg.OnHand = append(arg.OnHand, row.ToOnHand)
			arg.Held = append(arg.Held, row.ToHeld)
		}
	}
	if len(arg.ItemIds) == 0 {
		return nil
	}
	if _, err := l.reads.RememberChecked(ctx, arg); err != nil {
		return fmt.Errorf("note what was checked: %w", readError(err))
	}
	return nil
}
