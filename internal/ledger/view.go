package ledger

import (
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// view is what a batch is decided on, and what the decision adds up to. It is plain memory: deciding reads
// and changes the view, nothing else.
type view struct {
	// fresh: the rows were just read; named: so were keys and orders. Only a view that is both may refuse:
	// the write proves a grant, by its versions and the unique indexes; nothing proves a refusal.
	fresh, named bool
	// now is the ledger's clock when the view was read; zero unless fresh.
	now time.Time

	items      map[stock.Item]*itemRow
	operations map[stock.Keyed]operationRow
	live       map[orderPart]uuid.UUID
	deductions map[uuid.UUID]*deductionRow
	fences     map[string]stock.Token   // the newest claim of each key whose time is not over; locked until the write
	units      map[possession]*unitsRow // of every customer and item that is named, once v.named

	changed []*itemRow // items with steps, in the order they were first changed
	write   *dbsqlc.WriteBatchParams
	special bool // a new deduction has what only WriteBatch writes
}

// itemRow is an item's row as the batch has it so far.
type itemRow struct {
	id     int64
	seen   int64 // the version it was read with
	levels stock.Levels
	lowAt  stock.Quantity // it is low when no more than this is available; [neverLow]: it has no mark
	// Scratch of one decision:
	wanted stock.Quantity // asked for by the lines so far
	listed bool           // already in the answer
}

// neverLow is below anything that can be available.
const neverLow = -stock.MaxOnHand - 1

// lowMark is what an item's low_stock_at comes to.
func lowMark(at *int64) stock.Quantity {
	if at == nil {
		return neverLow
	}
	return stock.Quantity(*at)
}

func (r *itemRow) low() bool { return r.levels.Available() <= r.lowAt }

// orderPart is what may have one live deduction.
type orderPart struct{ client, order, part string }

// operationRow is a keyed operation that has had its effect.
type operationRow struct {
	fingerprint stock.Fingerprint
	kind        stock.OperationKind
	at          time.Time  // zero before it is written
	deduction   uuid.UUID  // zero for an adjustment
	item        int64      // zero unless an adjustment
	name        stock.Item // of the item, when the row was read
	version     int64      // of the adjustment's movement, or the revision of the deduction it made
}

// deductionRow is a deduction as the batch has it so far.
type deductionRow struct{ stock.Deduction }

// guard is which side of its expiry a hold must be on, by the ledger's clock, for a change to be written.
type guard string

const (
	noGuard   guard = ""
	guardLive guard = "live"
	guardDue  guard = "due"
)

// stale is [stock.ErrStale] unless the fence is the newest claim, or none.
func (v *view) stale(f stock.Fence) error {
	if f.Key == "" || v.fences[f.Key] == f.Token {
		return nil
	}
	return stock.ErrStale
}

// proves reports whether the view may refuse: it was just read, names and all.
func (v *view) proves() bool { return v.fresh && v.named }

// due reports whether a hold is known to be over. Only a fresh view has the ledger's clock; in another one
// the guard of the write decides.
func (v *view) due(d *deductionRow) bool {
	return d.State == stock.Held && !v.now.IsZero() && !d.ExpiresAt.After(v.now)
}

// ofAnotherEpoch reports whether a remembered row is of another timeline: its version may have been given again.
func (v *view) ofAnotherEpoch(epoch uint32) bool {
	for _, row := range v.items {
		if row.levels.Epoch != epoch {
			return true
		}
	}
	return false
}

// asOfNow is a deduction as a reader sees it: a hold whose time is over has ended, whether or not it was swept.
func (v *view) asOfNow(d *deductionRow) stock.Deduction {
	if !v.due(d) {
		return d.Deduction
	}
	seen := d.clone().Deduction
	showExpired(&seen)
	return seen
}

// copyFor is a view in which an operation may be tried, and forgotten.
func (v *view) copyFor(op operation) *view {
	c := newView(0, new(dbsqlc.WriteBatchParams))
	c.fresh, c.named, c.now = v.fresh, v.named, v.now
	c.operations, c.live = maps.Clone(v.operations), maps.Clone(v.live)
	for _, item := range op.touches() {
		if row := v.items[item]; row != nil {
			copied := *row
			c.items[item] = &copied
		}
	}
	c.units = make(map[possession]*unitsRow, len(v.units))
	for p, u := range v.units {
		copied := *u
		c.units[p] = &copied
	}
	for _, d := range op.names().deductions {
		c.deductions[d.ID] = v.deductions[d.ID].clone()
	}
	return c
}

// move appends a movement to the item's history and applies it to the view.
func (v *view) move(row *itemRow, m stock.Movement) {
	if row.levels.Version == row.seen {
		v.changed = append(v.changed, row)
	}
	wasLow := row.low()
	row.levels.OnHand += m.DeltaOnHand
	row.levels.Held += m.DeltaHeld
	row.levels.Version++
	if row.low() && !wasLow {
		v.tell(row)
	}

	w := v.write
	w.MovementItems = append(w.MovementItems, row.id)
	w.MovementVersions = append(w.MovementVersions, row.levels.Version)
	w.MovementDeltaOnHand = append(w.MovementDeltaOnHand, int64(m.DeltaOnHand))
	w.MovementDeltaHeld = append(w.MovementDeltaHeld, int64(m.DeltaHeld))
	w.MovementOnHand = append(w.MovementOnHand, int64(row.levels.OnHand))
	w.MovementHeld = append(w.MovementHeld, int64(row.levels.Held))
	w.MovementKinds = append(w.MovementKinds, string(m.Kind))
	w.MovementActors = append(w.MovementActors, m.Actor)
	w.MovementReasons = append(w.MovementReasons, m.Reason)
	w.MovementReferences = append(w.MovementReferences, m.Reference)
	deduction := uuid.UUID{}
	if m.Deduction != nil {
		deduction = *m.Deduction
	}
	w.MovementDeductions = append(w.MovementDeductions, deduction)
}

// tell that the item has become low by its last movement. It is told again only after it was not low meanwhile:
// what was before each movement is all that has to be known for that.
func (v *view) tell(row *itemRow) {
	w := v.write
	w.EventItems = append(w.EventItems, row.id)
	w.EventVersions = append(w.EventVersions, row.levels.Version)
	w.EventOnHand = append(w.EventOnHand, int64(row.levels.OnHand))
	w.EventHeld = append(w.EventHeld, int64(row.levels.Held))
	w.EventSafetyStock = append(w.EventSafetyStock, int64(row.levels.SafetyStock))
	w.EventLowStockAt = append(w.EventLowStockAt, int64(row.lowAt))
	w.EventKinds = append(w.EventKinds, string(stock.LowStock))
}

// record adds the idempotency key of an operation that the batch carries out.
func (v *view) record(key stock.Keyed, op operationRow) {
	if v.operations == nil {
		v.operations = make(map[stock.Keyed]operationRow)
	}
	v.operations[key] = op
	w := v.write
	w.OpClients = append(w.OpClients, key.Client)
	w.OpKeys = append(w.OpKeys, key.Key)
	w.OpFingerprints = append(w.OpFingerprints, op.fingerprint[:])
	w.OpDeductions = append(w.OpDeductions, op.deduction)
	w.OpItems = append(w.OpItems, op.item)
	w.OpVersions = append(w.OpVersions, op.version)
	w.OpKinds = append(w.OpKinds, string(op.kind))
}

// occupy puts a deduction in the way of others of its order.
func (v *view) occupy(d *stock.Deduction) {
	if v.live == nil {
		v.live = make(map[orderPart]uuid.UUID)
	}
	v.live[orderPart{d.Client, d.OrderID, d.Part}] = d.ID
}

// create adds a deduction and its lines.
func (v *view) create(d *stock.Deduction, hold time.Duration, portions []portion) {
	v.occupy(d)
	w := v.write
	w.DeductionIds = append(w.DeductionIds, d.ID)
	w.DeductionHolds = append(w.DeductionHolds, interval(hold))
	w.DeductionStates = append(w.DeductionStates, string(d.State))
	w.DeductionClients = append(w.DeductionClients, d.Client)
	w.DeductionOrders = append(w.DeductionOrders, d.OrderID)
	w.DeductionParts = append(w.DeductionParts, d.Part)
	w.DeductionNumbers = append(w.DeductionNumbers, d.Number)
	w.DeductionCustomers = append(w.DeductionCustomers, d.Customer.Name)
	w.DeductionLimits = append(w.DeductionLimits, int64(d.CustomerLimit))
	v.special = v.special || d.Customer.Name != ""
	for i := range d.Lines {
		l := &d.Lines[i]
		w.LineDeductions = append(w.LineDeductions, d.ID)
		w.LineItems = append(w.LineItems, portions[i].row.id)
		w.LineQuantities = append(w.LineQuantities, int64(l.Granted()))
		w.LineHeld = append(w.LineHeld, int64(l.Held))
		w.LineCommitted = append(w.LineCommitted, int64(l.Committed))
		w.LineNos = append(w.LineNos, int32(l.No))
		w.LineIds = append(w.LineIds, l.LineID)
		w.LineMissing = append(w.LineMissing, int64(l.Missing))
		w.LineRequests = append(w.LineRequests, int32(l.RequestLine))
		v.special = v.special || l.Missing > 0 || l.RequestLine != l.No
	}
}

// update changes a deduction that exists. The sequencer puts at most one operation on a deduction into a
// batch, so there is one change of it at most.
func (v *view) update(d *deductionRow, g guard, hold time.Duration) {
	w := v.write
	w.ChangeIds = append(w.ChangeIds, d.ID)
	w.ChangeRevisions = append(w.ChangeRevisions, d.Revision)
	w.ChangeGuards = append(w.ChangeGuards, string(g))
	w.ChangeStates = append(w.ChangeStates, string(d.State))
	w.ChangeHolds = append(w.ChangeHolds, interval(hold))
	d.Revision++
}

// updateLine writes a line's figures as they are in the view now.
func (v *view) updateLine(d *deductionRow, l *stock.Line) {
	w := v.write
	w.LineChangeIds = append(w.LineChangeIds, d.ID)
	w.LineChangeNos = append(w.LineChangeNos, int32(l.No))
	w.LineChangeHeld = append(w.LineChangeHeld, int64(l.Held))
	w.LineChangeCommitted = append(w.LineChangeCommitted, int64(l.Committed))
	w.LineChangeReturned = append(w.LineChangeReturned, int64(l.Returned))
}

// seal writes down the item rows once all decisions are made, and reports whether there is anything to write.
func (v *view) seal() bool {
	w := v.write
	for _, row := range v.changed {
		w.ItemIds = append(w.ItemIds, row.id)
		w.ItemVersions = append(w.ItemVersions, row.seen)
		w.ItemOnHand = append(w.ItemOnHand, int64(row.levels.OnHand))
		w.ItemHeld = append(w.ItemHeld, int64(row.levels.Held))
		w.ItemSteps = append(w.ItemSteps, row.levels.Version-row.seen)
	}
	for p, u := range v.units {
		if u.changed {
			w.CountItems = append(w.CountItems, v.items[p.item].id)
			w.CountUnits = append(w.CountUnits, int64(u.units))
			w.CountClients = append(w.CountClients, p.customer.Client)
			w.CountCustomers = append(w.CountCustomers, p.customer.Name)
		}
	}
	return len(w.ItemIds) > 0 || len(w.ChangeIds) > 0 || len(w.OpKeys) > 0
}

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: d > 0}
}
