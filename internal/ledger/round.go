package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Round is where the continuous check is on its way over all items, then what customers have, then all idempotency keys, and how
// the last whole round went. It is kept in the ledger, so that any process can make the next step.
type Round struct {
	ItemID        int64 // the last one that was checked
	ItemsDone     bool
	Counter       Counter // the last one that was checked
	CustomersDone bool
	Key           stock.Keyed // the last one that was checked

	Began   time.Time
	Checked Counts
	Last    LastRound
}

// LastRound is a round that has ended; zero before the first.
type LastRound struct {
	Began, Ended time.Time
	Checked      Counts
}

// Counts are how much was checked.
type Counts struct{ Items, Movements, Customers, Keys int64 }

// place is where a round is as it is kept: the phases of the walk share its columns.
type place struct {
	item                     int64
	itemsDone, customersDone bool
	client, name             string
}

func (r *Round) place() place {
	switch {
	case !r.ItemsDone:
		return place{item: r.ItemID}
	case !r.CustomersDone:
		return place{r.Counter.ItemID, true, false, r.Counter.Customer.Client, r.Counter.Customer.Name}
	}
	return place{r.ItemID, true, true, r.Key.Client, r.Key.Key}
}

// Round reads where the continuous check is.
func (l *Ledger) Round(ctx context.Context) (Round, error) {
	r, err := l.reads.ReadRound(ctx)
	if err != nil {
		return Round{}, readError(err)
	}
	round := Round{
		ItemsDone: r.ItemsDone, CustomersDone: r.CustomersDone,
		Began: r.BeganAt, Checked: Counts{r.Items, r.Movements, r.Customers, r.Keys},
	}
	switch {
	case !r.ItemsDone:
		round.ItemID = r.ItemID
	case !r.CustomersDone:
		round.Counter = Counter{r.ItemID, stock.Customer{Client: r.Client, Name: r.Key}}
	default:
		round.ItemID, round.Key = r.ItemID, stock.Keyed{Client: r.Client, Key: r.Key}
	}
	if r.LastBeganAt != nil && r.LastEndedAt != nil {
		round.Last = LastRound{*r.LastBeganAt, *r.LastEndedAt, Counts{r.LastItems, r.LastMovements, r.LastCustomers, r.LastKeys}}
	}
	return round, nil
}

// Advance moves the round from where it was read to where it is now. When another process moved it meanwhile, that
// stands: what both checked is checked.
func (l *Ledger) Advance(ctx context.Context, from, to *Round) error {
	was, is := from.place(), to.place()
	_, err := l.reads.AdvanceRound(ctx, dbsqlc.AdvanceRoundParams{
		ItemID: is.item, ItemsDone: is.itemsDone, CustomersDone: is.customersDone, Client: is.client, Key: is.name,
		Items: to.Checked.Items - from.Checked.Items, Movements: to.Checked.Movements - from.Checked.Movements,
		Customers: to.Checked.Customers - from.Checked.Customers, Keys: to.Checked.Keys - from.Checked.Keys,
		FromItemID: was.item, FromItemsDone: was.itemsDone, FromCustomersDone: was.customersDone, FromClient: was.client, FromKey: was.name,
	})
	if err != nil {
		return fmt.Errorf("advance the check: %w", readError(err))
	}
	return nil
}

// EndRound begins a new round when this one is at the last of its keys, and forgets what it did not find any more.
func (l *Ledger) EndRound(ctx context.Context, from, to *Round) error {
	ended, err := l.reads.EndRound(ctx, dbsqlc.EndRoundParams{
		Movements: to.Checked.Movements - from.Checked.Movements, Keys: to.Checked.Keys - from.Checked.Keys,
		FromClient: from.Key.Client, FromKey: from.Key.Key,
	})
	if err == nil && ended > 0 {
		_, err = l.reads.ForgetFindings(ctx)
	}
	if err != nil {
		return fmt.Errorf("end a round of the check: %w", readError(err))
	}
	return nil
}

// CheckKeys checks one page of idempotency keys, after the one given: that what each says it did is there, and that what a customer got by it is
// counted. It returns the last one it looked at and how many there were; fewer than limit are the last.
func (l *Ledger) CheckKeys(ctx context.Context, after stock.Keyed, limit int) (last stock.Keyed, n int, found []stock.Finding, err error) {
	rows, err := l.reads.CheckKeys(ctx, dbsqlc.CheckKeysParams{AfterClient: after.Client, AfterKey: after.Key, RowLimit: int32(limit)})
	if err != nil {
		return after, 0, nil, readError(err)
	}
	last = after
	var deductions []uuid.UUID
	for i := range rows {
		o := &rows[i]
		last = stock.Keyed{Client: o.Client, Key: o.Key}
		if o.DeductionID != nil && o.Kind == string(stock.DeductOperation) {
			deductions = append(deductions, *o.DeductionID)
		}
		want := int32(1)
		if o.Kind == string(stock.VoidOperation) {
			want = 0
		}
		if o.Effects == want {
			continue
		}
		op := operationOf(&dbsqlc.FindOperationsRow{DeductionID: o.DeductionID, ItemID: o.ItemID, Version: o.Version})
		found = append(found, stock.Finding{Rule: stock.RuleKeys, Subject: "key " + o.Key + " of " + o.Client, Evidence: []string{
			fmt.Sprintf("operations (client %q, key %q): %s, deduction_id %s, item_id %d, version %d: %d of them are there",
				o.Client, o.Key, o.Kind, op.deduction, op.item, op.version, o.Effects),
		}})
	}
	more, err := l.uncounted(ctx, deductions)
	if err != nil {
		return after, 0, nil, readError(err)
	}
	return last, len(rows), append(found, more...), nil
}

// Record keeps findings, so that any process can tell about them.
func (l *Ledger) Record(ctx context.Context, found []stock.Finding) error {
	for i := range found {
		f := &found[i]
		_, err := l.reads.RecordFinding(ctx, dbsqlc.RecordFindingParams{
			Rule: string(f.Rule), Subject: f.Subject, Evidence: f.Evidence, Repaired: f.Repaired,
		})
		if err != nil {
			return fmt.Errorf("record a finding: %w", readError(err))
		}
	}
	return nil
}

// RecordedFinding is a finding of the continuous check.
type RecordedFinding struct {
	stock.Finding
	FoundAt, SeenAt time.Time // first and last
}

// Findings lists what the continuous check found and has not seen whole since, the oldest first, and counts them by rule: all, and those
// not repaired.
func (l *Ledger) Findings(ctx context.Context, limit int) (list []RecordedFinding, all, open map[stock.Rule]int64, err error) {
	rows, err := l.reads.ListFindings(ctx, int32(limit))
	if err != nil {
		return nil, nil, nil, readError(err)
	}
	for i := range rows {
		f := &rows[i]
		list = append(list, RecordedFinding{
			stock.Finding{Rule: stock.Rule(f.Rule), Subject: f.Subject, Evidence: f.Evidence, Repaired: f.Repaired}, f.FoundAt, f.SeenAt,
		})
	}
	counts, err := l.reads.CountFindings(ctx)
	if err != nil {
		return nil, nil, nil, readError(err)
	}
	all, open = make(map[stock.Rule]int64), make(map[stock.Rule]int64)
	for _, c := range counts {
		all[stock.Rule(c.Rule)], open[stock.Rule(c.Rule)] = c.Findings, c.Open
	}
	return list, all, open, nil
}

// CheckWhole looks at the rules that need whole tables to be read, as of one moment, and returns at most limit
// findings of each. It takes as long as that takes.
func (l *Ledger) CheckWhole(ctx context.Context, limit int) ([]stock.Finding, error) {
	var found []stock.Finding
	err := l.snapshot(ctx, func(q *dbsqlc.Queries, _ uint32) error {
		if _, err := q.TakeTime(ctx); err != nil {
			return err
		}
		for _, look := range []func(context.Context, *dbsqlc.Queries, int32) ([]stock.Finding, error){
			linesNotOfState, linesNotMoved, deductionsNotKeyed, adjustmentsNotKeyed,
		} {
			more, err := look(ctx, q, int32(limit))
			if err != nil {
				return err
			}
			found = append(found, more...)
		}
		return nil
	})
	if err != nil {
		return nil, readError(err)
	}
	return found, nil
}

func linesNotOfState(ctx context.Context, q *dbsqlc.Queries, limit int32) (found []stock.Finding, err error) {
	rows, err := q.FindLinesNotOfState(ctx, limit)
	for i := range rows {
		d := &rows[i]
		found = append(found, stock.Finding{Rule: stock.RuleStates, Subject: "deduction " + d.ID.String(), Evidence: []string{
			fmt.Sprintf("deductions (id %s): %s", d.ID, d.State),
			fmt.Sprintf("deduction_lines (deduction_id %s) in sum: held %d, committed %d, returned %d", d.ID, d.Held, d.Committed, d.Returned),
		}})
	}
	return found, err
}

func linesNotMoved(ctx context.Context, q *dbsqlc.Queries, limit int32) (found []stock.Finding, err error) {
	rows, err := q.FindLinesNotMoved(ctx, limit)
	for i := range rows {
		r := &rows[i]
		lines := fmt.Sprintf("deduction_lines (deduction_id %s, item_id %d): none", r.DeductionID, r.ItemID)
		if r.HasLine {
			lines = fmt.Sprintf("deduction_lines (deduction_id %s, item_id %d) in sum: held %d, committed %d, returned %d",
				r.DeductionID, r.ItemID, r.Held, r.Committed, r.Returned)
		}
		found = append(found, stock.Finding{Rule: stock.RuleLines, Subject: "deduction " + r.DeductionID.String(), Evidence: []string{
			lines,
			fmt.Sprintf("movements (item_id %d, deduction_id %s) in sum: held %d, committed %d, returned %d",
				r.ItemID, r.DeductionID, r.MovedHeld, r.MovedCommitted, r.MovedReturned),
		}})
	}
	return found, err
}

func deductionsNotKeyed(ctx context.Context, q *dbsqlc.Queries, limit int32) (found []stock.Finding, err error) {
	rows, err := q.FindDeductionsNotKeyed(ctx, limit)
	for i := range rows {
		d := &rows[i]
		found = append(found, stock.Finding{Rule: stock.RuleKeyed, Subject: "deduction " + d.ID.String(), Evidence: []string{
			fmt.Sprintf("deductions (id %s): client %q, order_id %q", d.ID, d.Client, d.OrderID),
			fmt.Sprintf("operations (deduction_id %s): %d keys made it", d.ID, d.Keys),
		}})
	}
	return found, err
}

func adjustmentsNotKeyed(ctx context.Context, q *dbsqlc.Queries, limit int32) (found []stock.Finding, err error) {
	rows, err := q.FindAdjustmentsNotKeyed(ctx, limit)
	for i := range rows {
		m := &rows[i]
		found = append(found, stock.Finding{
			Rule: stock.RuleKeyed, Subject: fmt.Sprintf("movement %d of item %d", m.Version, m.ItemID), Evidence: []string{
				fmt.Sprintf("movements (item_id %d, version %d): %s", m.ItemID, m.Version, m.Kind),
				fmt.Sprintf("operations (item_id %d, version %d): %d keys made it", m.ItemID, m.Version, m.Keys),
			},
		})
	}
	return found, err
}
