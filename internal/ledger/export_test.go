package ledger

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// What the tests of the decision and of the sequencer need to see. Nothing here decides anything.

// Limits of the sequencer.
const (
	MaxBatchRequests = maxBatchRequests
	MaxBatchLines    = maxBatchLines
	MaxWaiting       = maxWaiting
	MaxWaitingLines  = maxWaitingLines
	MaxScan          = maxScan
)

// Sight is everything a batch is decided on.
type Sight struct {
	Fresh      bool
	Now        time.Time
	Items      []stock.Levels
	LowAt      map[stock.Item]stock.Quantity // of items that have a low stock mark
	Deductions []stock.Deduction
	Keys       map[stock.Keyed]Effect // that had their effect
	Live       []stock.Deduction      // that are in the way of others of their order
	Units      []stock.CustomerUnits  // that customers have
}

// Effect is what a key did: what was asked for, and the deduction it was about.
type Effect struct {
	Print     stock.Fingerprint
	Deduction uuid.UUID
}

// Asked is an operation that a batch may carry out.
type Asked struct {
	op    operation
	about []*deductionRow
}

// AskDeduct and the others make the operations that the methods of Ledger make.
func AskDeduct(r *stock.DeductRequest, id uuid.UUID) Asked { return Asked{op: newDeduct(r, id)} }

// AskCommit is the operation of Ledger.Commit.
func AskCommit(d *stock.Deduction, r *stock.CommitRequest) Asked {
	on := newOnDeduction(d.Client, d)
	return Asked{newCommit(on, r), on.rows}
}

// AskRelease is the operation of Ledger.Release.
func AskRelease(d *stock.Deduction) Asked {
	on := newOnDeduction(d.Client, d)
	return Asked{&release{on}, on.rows}
}

// AskExpire is the operation of Ledger.Expire.
func AskExpire(d *stock.Deduction) Asked {
	on := newOnDeduction(d.Client, d)
	return Asked{&expire{onDeduction: on}, on.rows}
}

// AskExtend is the operation of Ledger.Extend.
func AskExtend(d *stock.Deduction, r *stock.ExtendRequest) Asked {
	on := newOnDeduction(d.Client, d)
	return Asked{&extend{onDeduction: on, hold: r.Hold, reacquire: r.Reacquire}, on.rows}
}

// AskReturn is the operation of Ledger.Return.
func AskReturn(d *stock.Deduction, r *stock.ReturnRequest) Asked {
	on := newOnDeduction(d.Client, d)
	return Asked{&giveIn{onDeduction: on, ReturnRequest: r, fingerprint: r.Fingerprint()}, on.rows}
}

// AskAdjust is the operation of Ledger.Adjust.
func AskAdjust(r *stock.AdjustRequest) Asked {
	return Asked{op: newAdjust(r)}
}

// AskRehearsal is the operation that decides another one and forgets it.
func AskRehearsal(a Asked) Asked { return Asked{rehearsal{a.op}, a.about} }

// Verdict is the answer to one operation.
type Verdict struct {
	Outcome    *stock.Outcome
	Adjustment *stock.Adjustment
	Replay     bool
	Err        error
}

// Decision is what a batch comes to.
type Decision struct {
	NeedsRead  bool // nothing was decided: something has to be read first
	Verdicts   []Verdict
	Write      bool // there is something to write:
	Items      []ItemChange
	Moved      []Moved
	Told       []Told
	Keys       []stock.Keyed
	New        []NewDeduction
	Deductions []DeductionChange
	Lines      []LineChange
	Units      []stock.CustomerUnits
}

// ItemChange is the new row of an item.
type ItemChange struct {
	Item         stock.Item
	Seen, Steps  int64
	OnHand, Held stock.Quantity
}

// Moved is a movement and whose it is.
type Moved struct {
	Item stock.Item
	stock.Movement
}

// Told is an event: the movement that made an item low.
type Told struct {
	Item    stock.Item
	Version int64
}

// NewDeduction is the row of a new deduction; its lines are in the order of the request.
type NewDeduction struct {
	ID    uuid.UUID
	State stock.State
	Lines []stock.Line
}

// DeductionChange is the new row of a deduction.
type DeductionChange struct {
	ID       uuid.UUID
	Revision int32 // it was decided on
	State    stock.State
	Guard    string
}

// LineChange is the new row of a line.
type LineChange struct {
	ID                        uuid.UUID
	No                        int
	Held, Committed, Returned stock.Quantity
}

// Decide decides a batch. Items are numbered as Sight lists them, from one.
func Decide(s Sight, batch ...Asked) Decision {
	params := new(dbsqlc.WriteBatchParams)
	v := s.view(params)
	requests := make([]*request, len(batch))
	for i, a := range batch {
		requests[i] = &request{op: a.op, items: a.op.touches(), about: a.about}
	}
	if s.Fresh {
		s.count(v, requests)
	}
	results, err := decideAll(v, requests)
	if err != nil {
		return Decision{NeedsRead: true}
	}
	d := Decision{Write: v.seal(), Verdicts: make([]Verdict, len(results))}
	for i, r := range results {
		d.Verdicts[i] = Verdict{r.outcome, r.adjustment, r.replay != nil, r.err}
	}
	d.read(params, func(id int64) stock.Item { return s.Items[id-1].Item })
	return d
}

// count reads what customers have.
func (s Sight) count(v *view, requests []*request) {
	v.units = make(map[possession]*unitsRow)
	for _, p := range needsOf(requests).units {
		v.units[p] = new(unitsRow)
	}
	for _, u := range s.Units {
		if row := v.units[possession{u.Customer, u.Item}]; row != nil {
			row.units = u.Units
		}
	}
}

// Counts reports whether it changes what a customer has.
func (a Asked) Counts() bool { return (&request{op: a.op, items: a.op.touches()}).counts() }

func (s Sight) view(params *dbsqlc.WriteBatchParams) *view {
	v := newView(len(s.Items), params)
	v.fresh, v.named, v.now = s.Fresh, s.Fresh, s.Now
	for i, l := range s.Items {
		v.items[l.Item] = &itemRow{id: int64(i + 1), seen: l.Version, levels: l, lowAt: neverLow}
	}
	for item, at := range s.LowAt {
		v.items[item].lowAt = at
	}
	for _, d := range s.Deductions {
		v.deductions[d.ID] = (&deductionRow{d}).clone()
	}
	v.operations = make(map[stock.Keyed]operationRow)
	for key, e := range s.Keys {
		v.operations[key] = operationRow{fingerprint: e.Print, deduction: e.Deduction}
	}
	v.live = make(map[orderPart]uuid.UUID)
	for _, d := range s.Live {
		v.live[orderPart{d.Client, d.OrderID, d.Part}] = d.ID
	}
	return v
}

// read turns the arguments of the statement into rows.
func (d *Decision) read(w *dbsqlc.WriteBatchParams, name func(int64) stock.Item) {
	for i, id := range w.ItemIds {
		d.Items = append(d.Items, ItemChange{
			name(id), w.ItemVersions[i], w.ItemSteps[i], stock.Quantity(w.ItemOnHand[i]), stock.Quantity(w.ItemHeld[i]),
		})
	}
	for i, id := range w.MovementItems {
		d.Moved = append(d.Moved, Moved{name(id), stock.Movement{
			Version: w.MovementVersions[i], Kind: stock.MovementKind(w.MovementKinds[i]),
			DeltaOnHand: stock.Quantity(w.MovementDeltaOnHand[i]), DeltaHeld: stock.Quantity(w.MovementDeltaHeld[i]),
			OnHand: stock.Quantity(w.MovementOnHand[i]), Held: stock.Quantity(w.MovementHeld[i]),
			Actor: w.MovementActors[i], Reason: w.MovementReasons[i], Reference: w.MovementReferences[i],
			Deduction: &w.MovementDeductions[i],
		}})
	}
	for i, id := range w.EventItems {
		d.Told = append(d.Told, Told{name(id), w.EventVersions[i]})
	}
	for i := range w.OpKeys {
		d.Keys = append(d.Keys, stock.Keyed{Client: w.OpClients[i], Key: w.OpKeys[i]})
	}
	for i, id := range w.DeductionIds {
		d.New = append(d.New, NewDeduction{ID: id, State: stock.State(w.DeductionStates[i])})
	}
	for i, id := range w.LineDeductions {
		at := slices.IndexFunc(d.New, func(n NewDeduction) bool { return n.ID == id })
		d.New[at].Lines = append(d.New[at].Lines, stock.Line{
			No: int(w.LineNos[i]), RequestLine: int(w.LineRequests[i]), LineID: w.LineIds[i], Item: name(w.LineItems[i]),
			Quantity: stock.Quantity(w.LineQuantities[i] + w.LineMissing[i]), Missing: stock.Quantity(w.LineMissing[i]),
			Held: stock.Quantity(w.LineHeld[i]), Committed: stock.Quantity(w.LineCommitted[i]),
		})
	}
	for i, id := range w.CountItems {
		d.Units = append(d.Units, stock.CustomerUnits{
			Customer: stock.Customer{Client: w.CountClients[i], Name: w.CountCustomers[i]}, Item: name(id), Units: stock.Quantity(w.CountUnits[i]),
		})
	}
	for i, id := range w.ChangeIds {
		d.Deductions = append(d.Deductions, DeductionChange{id, w.ChangeRevisions[i], stock.State(w.ChangeStates[i]), w.ChangeGuards[i]})
	}
	for i, id := range w.LineChangeIds {
		d.Lines = append(d.Lines, LineChange{
			id, int(w.LineChangeNos[i]), stock.Quantity(w.LineChangeHeld[i]),
			stock.Quantity(w.LineChangeCommitted[i]), stock.Quantity(w.LineChangeReturned[i]),
		})
	}
}

// Waiting is how many requests are in no batch yet.
func (l *Ledger) Waiting() int {
	n, _ := Queue{l.sequencer}.Waiting()
	return n
}

// Busy lists the items of batches on their way.
func (l *Ledger) Busy() []stock.Item { return Queue{l.sequencer}.Busy() }

// Queue is a sequencer without a ledger behind it.
type Queue struct{ s *sequencer }

// NewQueue makes a sequencer.
func NewQueue() Queue { return Queue{newSequencer(newMetrics(nil))} }

// Queued is a request in a [Queue].
type Queued struct {
	r *request
	q Queue
}

// errand is an operation that is about items and perhaps a deduction, and is never decided.
type errand struct {
	items []stock.Item
	about []*deductionRow
}

func (e *errand) touches() []stock.Item { return e.items }
func (e *errand) names() names          { return names{deductions: e.about} }
func (e *errand) decide(*view) result   { panic("an errand is not decided") }

// Submit an operation on items.
func (q Queue) Submit(items ...stock.Item) (*Queued, error) { return q.submit(&errand{items: items}) }

// SubmitAbout is Submit of an operation on a deduction.
func (q Queue) SubmitAbout(id uuid.UUID, items ...stock.Item) (*Queued, error) {
	return q.submit(&errand{items, []*deductionRow{{stock.Deduction{ID: id}}}})
}

func (q Queue) submit(e *errand) (*Queued, error) {
	r, err := q.s.submit(e)
	if err != nil {
		return nil, err
	}
	return &Queued{r, q}, nil
}

// Wait for the answer, as a caller does.
func (q *Queued) Wait(ctx context.Context) error { return q.q.s.wait(ctx, q.r).err }

// Taker takes batches from a [Queue], as a writer does.
type Taker struct {
	q     Queue
	batch []*request
}

// Taker makes one more.
func (q Queue) Taker() *Taker { return &Taker{q: q} }

// Take ends the last batch and waits for the next; false when the queue is closed and empty. The keys are in the
// order of the batch and name what [Queue.Submit] returned.
func (t *Taker) Take() (Batch, bool) {
	var ok bool
	t.batch, ok = t.q.s.take(t.batch)
	return Batch{slices.Clone(t.batch)}, ok
}

// Batch is what a [Taker] took.
type Batch struct{ requests []*request }

// Len is how many requests it has.
func (b Batch) Len() int { return len(b.requests) }

// Items of each request.
func (b Batch) Items() [][]stock.Item {
	all := make([][]stock.Item, len(b.requests))
	for i, r := range b.requests {
		all[i] = r.items
	}
	return all
}

// Has reports whether q is the request at a place of the batch.
func (b Batch) Has(at int, q *Queued) bool { return at < len(b.requests) && b.requests[at] == q.r }

// Index is where a request is in the batch, or -1.
func (b Batch) Index(q *Queued) int { return slices.Index(b.requests, q.r) }

// Answer every request of the batch.
func (b Batch) Answer(err error) {
	for _, r := range b.requests {
		r.done <- result{err: err}
	}
}

// Close the queue.
func (q Queue) Close() { q.s.close() }

// Waiting is how many requests and lines the queue counts as waiting.
func (q Queue) Waiting() (requests, lines int) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return len(q.s.queue), q.s.lines
}

// Idle is how many takers wait.
func (q Queue) Idle() int {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return len(q.s.idle)
}

// Busy lists the items of batches on their way.
func (q Queue) Busy() []stock.Item {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(q.s.busy), stock.Item.Compare)
}
