package ledger_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// The decision is checked against the rules told once more, the plain way: one request after the other on plain
// figures, without rows, versions, batches or arrays.

// model is the stock as the rules have it.
type model struct {
	shelves    map[stock.Item]*shelf
	deductions map[uuid.UUID]*stock.Deduction
	over       map[uuid.UUID]bool // holds whose time is over
	keys       map[stock.Keyed]stock.Fingerprint
	// taken is which deduction is in the way of others of its order. One that ends makes room for the next batch, not
	// for a request of the same: both would be written by one statement, which the unique index refuses.
	taken map[string]uuid.UUID
	units map[string]stock.Quantity // by customer and item
}

type shelf struct {
	onHand, held, safety stock.Quantity
	marked               bool
	lowAt                stock.Quantity
	moves                []string // kind, Δon_hand, Δheld
	fell                 []int    // after how many moves it became low
}

func (s *shelf) low() bool { return s.marked && s.onHand-s.held-s.safety <= s.lowAt }

func (m *model) move(item stock.Item, kind stock.MovementKind, onHand, held stock.Quantity) {
	s := m.shelves[item]
	was := s.low()
	s.onHand += onHand
	s.held += held
	s.moves = append(s.moves, fmt.Sprint(kind, onHand, held))
	if !was && s.low() {
		s.fell = append(s.fell, len(s.moves))
	}
}

// fits says which lines are short, or nothing.
func (m *model) fits(lines []stock.WantedLine) string {
	sum := map[stock.Item]stock.Quantity{}
	for _, l := range lines {
		sum[l.Item] += l.Quantity
	}
	short := ""
	for i, l := range lines {
		s := m.shelves[l.Item]
		if free := s.onHand - s.held - s.safety; sum[l.Item] > free {
			short += fmt.Sprintf(" %d:%d>%d", i, sum[l.Item], free)
		}
	}
	return short
}

// count what a customer has more, or less, of an item.
func (m *model) count(d *stock.Deduction, item stock.Item, units stock.Quantity) {
	if d.Customer.Name != "" && units != 0 {
		m.units[d.Customer.Name+" "+item.String()] += units
	}
}

// limit says which lines are too many for the customer, or nothing.
func (m *model) limit(d *stock.Deduction, lines []stock.WantedLine) string {
	sum := map[stock.Item]stock.Quantity{}
	for _, l := range lines {
		sum[l.Item] += l.Quantity
	}
	over := ""
	for i, l := range lines {
		if has := m.units[d.Customer.Name+" "+l.Item.String()]; d.CustomerLimit > 0 && has+sum[l.Item] > d.CustomerLimit {
			over += fmt.Sprintf(" %d:%d+%d>%d", i, has, sum[l.Item], d.CustomerLimit)
		}
	}
	return over
}

// serve is what one line gets, by location, when other lines have got some already; the first of what it may be taken from
// stands for all when there is nothing.
func (m *model) serve(l *stock.WantedLine, got map[stock.Item]stock.Quantity) []stock.Line {
	var from []stock.Item
	for _, item := range l.AppendItems(nil) {
		if m.shelves[item] != nil {
			from = append(from, item)
		}
	}
	free := func(item stock.Item) stock.Quantity {
		s := m.shelves[item]
		return max(0, s.onHand-s.held-s.safety-got[item])
	}
	for _, item := range from {
		if free(item) >= l.Quantity {
			return []stock.Line{{Item: item, Quantity: l.Quantity}}
		}
	}
	if l.Sourcing == nil || !l.Sourcing.Split {
		best := from[0]
		for _, item := range from {
			if free(item) > free(best) {
				best = item
			}
		}
		return []stock.Line{{Item: best, Quantity: l.Quantity, Missing: l.Quantity - free(best)}}
	}
	var lines []stock.Line
	left := l.Quantity
	for _, item := range from {
		if part := min(left, free(item)); part > 0 {
			lines = append(lines, stock.Line{Item: item, Quantity: part})
			left -= part
		}
	}
	if lines == nil {
		lines = []stock.Line{{Item: from[0]}}
	}
	last := &lines[len(lines)-1]
	last.Quantity, last.Missing = last.Quantity+left, left
	return lines
}

// plan is what all lines get, one after the other.
func (m *model) plan(r *stock.DeductRequest) (lines []stock.Line, missing stock.Quantity, anything bool) {
	got := map[stock.Item]stock.Quantity{}
	for i := range r.Lines {
		for _, line := range m.serve(&r.Lines[i], got) {
			line.No, line.RequestLine = len(lines)+1, i+1
			got[line.Item] += line.Granted()
			missing, anything = missing+line.Missing, anything || line.Granted() > 0
			lines = append(lines, line)
		}
	}
	return lines, missing, anything
}

func (m *model) deduct(r *stock.DeductRequest, id uuid.UUID) string {
	if print, ok := m.keys[r.Keyed]; ok {
		return map[bool]string{true: "replay", false: "reused"}[print == r.Fingerprint()]
	}
	if other, ok := m.taken[r.OrderID]; ok {
		return "order " + other.String()
	}
	unknown := ""
	for i, l := range r.Lines {
		if !slices.ContainsFunc(l.AppendItems(nil), func(i stock.Item) bool { return m.shelves[i] != nil }) {
			unknown += fmt.Sprint(" ", i)
		}
	}
	if unknown != "" {
		return "unknown" + unknown
	}
	d := &stock.Deduction{ID: id, OrderID: r.OrderID, State: stock.Committed, Customer: r.For(), CustomerLimit: r.CustomerLimit}
	if over := m.limit(d, r.Lines); over != "" {
		return "limit" + over
	}
	lines, missing, anything := m.plan(r)
	if missing > 0 && !(r.AllowPartial && anything) {
		if slices.ContainsFunc(r.Lines, func(l stock.WantedLine) bool { return l.Sourcing != nil }) {
			return "short" // which locations is told below
		}
		return "short" + m.fits(r.Lines)
	}
	for _, line := range lines {
		units := line.Granted()
		if r.Hold > 0 {
			d.State, line.Held = stock.Held, units
		} else {
			line.Committed = units
		}
		d.Lines = append(d.Lines, line)
		switch {
		case units == 0:
		case r.Hold > 0:
			m.move(line.Item, stock.Hold, 0, units)
		default:
			m.move(line.Item, stock.Deducted, -units, 0)
		}
		m.count(d, line.Item, units)
	}
	m.deductions[id], m.keys[r.Keyed], m.taken[r.OrderID] = d, r.Fingerprint(), id
	return "done"
}

// ended is the state of a hold when nothing is held any more.
func ended(d *stock.Deduction, otherwise stock.State) stock.State {
	var taken, back stock.Quantity
	for _, l := range d.Lines {
		taken, back = taken+l.Committed, back+l.Returned
	}
	switch {
	case taken == 0:
		return otherwise
	case back == taken:
		return stock.Returned
	}
	return stock.Committed
}

// state is what a reader sees: a hold whose time is over has ended.
func (m *model) state(d *stock.Deduction) stock.State {
	if d.State == stock.Held && m.over[d.ID] {
		return ended(d, stock.Expired)
	}
	return d.State
}

func (m *model) commit(d *stock.Deduction, r *stock.CommitRequest) string {
	take := make([]stock.Quantity, len(d.Lines))
	for i, l := range d.Lines {
		take[i] = l.Held
	}
	if len(r.Lines) > 0 {
		clear(take)
		for _, l := range r.Lines {
			take[l.No-1] += l.Quantity
		}
	}
	switch m.state(d) {
	case stock.Held:
	case stock.Expired:
		return "expired"
	case stock.Released:
		return "state"
	default:
		for i, l := range d.Lines {
			if r.KeepRest || l.Committed != take[i] && len(r.Lines) > 0 || l.Committed != l.Granted() && len(r.Lines) == 0 {
				return "state"
			}
		}
		return "unchanged"
	}
	for i, l := range d.Lines {
		if take[i] > l.Held {
			return "field"
		}
	}
	d.State = stock.Committed
	for i := range d.Lines {
		l := &d.Lines[i]
		rest := l.Held - take[i]
		if take[i] > 0 {
			m.move(l.Item, stock.Commit, -take[i], -take[i])
			l.Committed += take[i]
			l.Held -= take[i]
		}
		switch {
		case rest > 0 && r.KeepRest:
			d.State = stock.Held
		case rest > 0:
			m.move(l.Item, stock.Release, 0, -rest)
			m.count(d, l.Item, -rest)
			l.Held = 0
		}
	}
	return "done"
}

func (m *model) giveBack(d *stock.Deduction, kind stock.MovementKind, state stock.State) string {
	for i := range d.Lines {
		if l := &d.Lines[i]; l.Held > 0 {
			m.move(l.Item, kind, 0, -l.Held)
			m.count(d, l.Item, -l.Held)
			l.Held = 0
		}
	}
	d.State = ended(d, state)
	return "done"
}

func (m *model) release(d *stock.Deduction) string {
	switch {
	case d.State == stock.Held && m.over[d.ID]:
		return m.giveBack(d, stock.Expire, stock.Expired)
	case d.State == stock.Held:
		return m.giveBack(d, stock.Release, stock.Released)
	}
	for _, l := range d.Lines {
		if l.Committed < l.Granted() {
			return "unchanged"
		}
	}
	return "state"
}

func (m *model) expire(d *stock.Deduction) string {
	if d.State == stock.Held && m.over[d.ID] {
		return m.giveBack(d, stock.Expire, stock.Expired)
	}
	return "unchanged"
}

func (m *model) extend(d *stock.Deduction, r *stock.ExtendRequest) string {
	switch m.state(d) {
	case stock.Held:
		m.over[d.ID] = false
		return "done"
	case stock.Expired:
	default:
		return "state"
	}
	if !r.Reacquire {
		return "expired"
	}
	if other, ok := m.taken[d.OrderID]; ok && other != d.ID {
		return "order " + other.String()
	}
	if d.State == stock.Expired {
		var again []stock.WantedLine
		for _, l := range d.Lines {
			again = append(again, stock.WantedLine{Item: l.Item, Quantity: l.Granted()})
		}
		if over := m.limit(d, again); over != "" {
			return "limit" + over
		}
		if short := m.fits(again); short != "" {
			return "short" + short
		}
	}
	for i := range d.Lines {
		l := &d.Lines[i]
		if l.Held > 0 {
			m.move(l.Item, stock.Expire, 0, -l.Held)
			m.count(d, l.Item, -l.Held)
		}
		if l.Held = l.Granted(); l.Held > 0 {
			m.move(l.Item, stock.Hold, 0, l.Held)
			m.count(d, l.Item, l.Held)
		}
	}
	d.State = stock.Held
	m.over[d.ID], m.taken[d.OrderID] = false, d.ID
	return "done"
}

func (m *model) giveIn(d *stock.Deduction, r *stock.ReturnRequest) string {
	if print, ok := m.keys[r.Keyed]; ok {
		return map[bool]string{true: "replay", false: "reused"}[print == r.Fingerprint()]
	}
	back := make([]stock.Quantity, len(d.Lines))
	var taken, total stock.Quantity
	for i, l := range d.Lines {
		taken += l.Committed
		if len(r.Lines) == 0 {
			back[i] = l.Committed - l.Returned
		}
	}
	for _, l := range r.Lines {
		back[l.No-1] += l.Quantity
	}
	if taken == 0 {
		return "state"
	}
	excess := ""
	for i, l := range r.Lines {
		if left := d.Lines[l.No-1].Committed - d.Lines[l.No-1].Returned; back[l.No-1] > left {
			excess += fmt.Sprintf(" %d:%d>%d", i, back[l.No-1], left)
		}
	}
	if excess != "" {
		return "excess" + excess
	}
	for i := range back {
		total += back[i]
	}
	if total == 0 {
		return "state"
	}
	for i := range d.Lines {
		if back[i] > 0 {
			m.move(d.Lines[i].Item, stock.Return, back[i], 0)
			m.count(d, d.Lines[i].Item, -back[i])
			d.Lines[i].Returned += back[i]
		}
	}
	if d.State == stock.Committed {
		d.State = ended(d, d.State)
	}
	m.keys[r.Keyed] = r.Fingerprint()
	return "done"
}

func (m *model) adjust(r *stock.AdjustRequest) string {
	if print, ok := m.keys[r.Keyed]; ok {
		return map[bool]string{true: "replay", false: "reused"}[print == r.Fingerprint()]
	}
	s := m.shelves[r.Item]
	if s == nil {
		return "unknown 0"
	}
	delta := r.Delta
	if r.SetTo != nil {
		switch {
		case r.ExpectedOnHand == nil:
			return "required"
		case *r.ExpectedOnHand != s.onHand:
			return "failed"
		}
		delta = *r.SetTo - s.onHand
	}
	if s.onHand+delta < s.held {
		return fmt.Sprintf("short 0:%d>%d", -delta, s.onHand-s.held)
	}
	m.move(r.Item, r.Kind, delta, 0)
	m.keys[r.Keyed] = r.Fingerprint()
	return "done"
}

// told is a verdict in the words of the model.
func told(v ledger.Verdict) string {
	var (
		short   *stock.ShortError
		unknown *stock.UnknownItemError
		order   *stock.OrderError
		excess  *stock.ReturnError
		limit   *stock.LimitError
	)
	text := ""
	switch err := v.Err; {
	case err == nil && v.Replay:
		return "replay"
	case err == nil && v.Outcome != nil && v.Outcome.Replayed:
		return "unchanged"
	case err == nil:
		return "done"
	case errors.As(err, &short):
		for _, l := range short.Lines {
			text += fmt.Sprintf(" %d:%d>%d", l.Line, l.Requested, l.Available)
		}
		return "short" + text
	case errors.As(err, &limit):
		for _, l := range limit.Lines {
			text += fmt.Sprintf(" %d:%d+%d>%d", l.Line, l.Has, l.Requested, l.Limit)
		}
		return "limit" + text
	case errors.As(err, &unknown):
		for _, l := range unknown.Lines {
			text += fmt.Sprint(" ", l.Line)
		}
		return "unknown" + text
	case errors.As(err, &excess):
		for _, l := range excess.Lines {
			text += fmt.Sprintf(" %d:%d>%d", l.Line, l.Requested, l.Possible)
		}
		return "excess" + text
	case errors.As(err, &order):
		return "order " + order.ID.String()
	}
	for sentinel, word := range map[error]string{
		stock.ErrKeyReused: "reused", stock.ErrHoldExpired: "expired", stock.ErrWrongState: "state",
		stock.ErrInvalidField: "field", stock.ErrPreconditionFailed: "failed", stock.ErrPreconditionRequired: "required",
	} {
		if errors.Is(v.Err, sentinel) {
			return word
		}
	}
	return v.Err.Error()
}

// dice make a situation and a batch.
type dice struct {
	*rand.Rand
	ids   int
	wants *stock.DeductRequest // the last one that was made, to be sent again
	moves *stock.AdjustRequest // the same
}

func (r *dice) id() uuid.UUID {
	r.ids++
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(r.ids))
	return id
}

func (r *dice) quantity(most int) stock.Quantity { return stock.Quantity(1 + r.IntN(most)) }
func (r *dice) chance(percent int) bool          { return r.IntN(100) < percent }

var shelfNames = []string{"A", "B", "C", "D"}

// elsewhere are the other locations that have some of them.
var elsewhere = []stock.Item{{SKU: "A", Location: "east"}, {SKU: "A", Location: "west"}, {SKU: "B", Location: "east"}}

func (r *dice) item() stock.Item {
	if r.chance(3) {
		return at("unknown")
	}
	if r.chance(10) {
		return elsewhere[r.IntN(len(elsewhere))]
	}
	return at(shelfNames[r.IntN(len(shelfNames))])
}

// sourcing names some of the locations, in any order.
func (r *dice) sourcing() *stock.Sourcing {
	all := []stock.Location{stock.DefaultLocation, "east", "west", "nowhere"}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return &stock.Sourcing{Locations: all[:1+r.IntN(len(all))], Split: r.chance(50)}
}

var customers = []string{"ann", "bob"}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// deduction makes one in any state that it can have got into.
func (r *dice) deduction(order string) (d stock.Deduction, over bool) {
	d = stock.Deduction{ID: r.id(), Client: "shop", OrderID: order, Revision: int32(1 + r.IntN(5)), CreatedAt: noon.Add(-time.Hour)}
	if r.chance(40) {
		d.Customer, d.CustomerLimit = stock.Customer{Client: "shop", Name: customers[r.IntN(2)]}, stock.Quantity(r.IntN(12))
	}
	state := stock.States()[r.IntN(5)]
	for no := range 1 + r.IntN(3) {
		l := stock.Line{No: no + 1, RequestLine: no + 1, Item: at(shelfNames[r.IntN(len(shelfNames))]), Quantity: r.quantity(4)}
		switch state {
		case stock.Held:
			if l.Committed = stock.Quantity(r.IntN(int(l.Quantity))); r.chance(60) {
				l.Committed = 0
			}
			l.Held = l.Quantity - l.Committed
		case stock.Committed, stock.Returned:
			l.Committed = r.quantity(int(l.Quantity))
		}
		if l.Committed > 0 && state == stock.Returned {
			l.Returned = l.Committed
		} else if l.Committed > 0 {
			l.Returned = stock.Quantity(r.IntN(int(l.Committed)))
		}
		d.Lines = append(d.Lines, l)
	}
	d.State, d.ExpiresAt = state, noon.Add(time.Minute)
	if over = state == stock.Held && r.chance(40); over {
		d.ExpiresAt = noon.Add(-time.Duration(r.IntN(2)) * time.Second) // at noon sharp it is over, too
	}
	return d, over
}

// situation is what a batch meets, for the decision and for the model.
func (r *dice) situation() (ledger.Sight, *model) {
	s := ledger.Sight{Fresh: true, Now: noon, Keys: map[stock.Keyed]ledger.Effect{}, LowAt: map[stock.Item]stock.Quantity{}}
	m := &model{
		shelves: map[stock.Item]*shelf{}, deductions: map[uuid.UUID]*stock.Deduction{},
		over: map[uuid.UUID]bool{}, keys: map[stock.Keyed]stock.Fingerprint{}, taken: map[string]uuid.UUID{},
		units: map[string]stock.Quantity{},
	}
	held := map[stock.Item]stock.Quantity{}
	for order := range r.IntN(6) {
		d, over := r.deduction(fmt.Sprint("order-", order))
		s.Deductions = append(s.Deductions, d)
		if d.State.Live() {
			s.Live = append(s.Live, d)
			m.taken[d.OrderID] = d.ID
		}
		for _, l := range d.Lines {
			held[l.Item] += l.Held
			m.count(&d, l.Item, l.Held+l.Committed-l.Returned)
		}
		c := d
		c.Lines = slices.Clone(d.Lines)
		m.deductions[d.ID], m.over[d.ID] = &c, over
	}
	for _, name := range shelfNames {
		l := stock.Levels{
			Item: at(name), Held: held[at(name)], OnHand: held[at(name)] + stock.Quantity(r.IntN(10)),
			SafetyStock: stock.Quantity(r.IntN(3)), Version: int64(r.IntN(1000)),
		}
		s.Items = append(s.Items, l)
		m.shelves[l.Item] = &shelf{onHand: l.OnHand, held: l.Held, safety: l.SafetyStock}
		if r.chance(70) {
			s.LowAt[l.Item] = stock.Quantity(r.IntN(8))
			m.shelves[l.Item].marked, m.shelves[l.Item].lowAt = true, s.LowAt[l.Item]
		}
	}
	for _, item := range elsewhere {
		s.Items = append(s.Items, stock.Levels{Item: item, OnHand: stock.Quantity(r.IntN(4)), Version: int64(r.IntN(1000))})
		m.shelves[item] = &shelf{onHand: s.Items[len(s.Items)-1].OnHand}
	}
	for _, name := range customers {
		for _, l := range s.Items {
			if r.chance(20) {
				m.units[name+" "+l.Item.String()] += r.quantity(4) // of deductions that nobody asks for here
			}
			u := stock.CustomerUnits{Customer: stock.Customer{Client: "shop", Name: name}, Item: l.Item, Units: m.units[name+" "+l.Item.String()]}
			s.Units = append(s.Units, u)
		}
	}
	done := r.want() // some time ago
	s.Keys[done.Keyed] = ledger.Effect{Print: done.Fingerprint(), Deduction: r.id()}
	m.keys[done.Keyed] = done.Fingerprint()
	return s, m
}

// key is fresh mostly, and sometimes that of another request.
func (r *dice) key() stock.Keyed { return keyed(fmt.Sprint("key-", r.IntN(40))) }

// wish is an operation and what the model says to it.
type wish struct {
	asked  ledger.Asked
	model  func(*model) string
	deduct *stock.DeductRequest // nil: another operation
}

func (r *dice) want() *stock.DeductRequest {
	if r.wants != nil && r.chance(20) {
		return r.wants
	}
	r.wants = &stock.DeductRequest{Keyed: r.key(), OrderID: fmt.Sprint("order-", r.IntN(12))}
	for range 1 + r.IntN(4) {
		r.wants.Lines = append(r.wants.Lines, stock.WantedLine{Item: r.item(), Quantity: r.quantity(3)})
	}
	if r.chance(50) {
		r.wants.Hold = time.Minute
	}
	r.wants.AllowPartial = r.chance(25)
	if r.chance(25) {
		r.wants.Customer = customers[r.IntN(2)]
	}
	switch {
	case r.wants.Customer != "" && r.chance(60):
		r.wants.CustomerLimit = r.quantity(9)
	case r.chance(25):
		l := &r.wants.Lines[r.IntN(len(r.wants.Lines))]
		l.Item, l.Quantity, l.Sourcing = stock.Item{SKU: l.Item.SKU}, r.quantity(6), r.sourcing()
	}
	return r.wants
}

func (r *dice) deduct() wish {
	req, id := r.want(), r.id()
	return wish{ledger.AskDeduct(req, id), func(m *model) string { return m.deduct(req, id) }, req}
}

// some lines of a deduction, each with a quantity that may be too much.
func (r *dice) lines(d *stock.Deduction) []stock.LineQuantity {
	var lines []stock.LineQuantity
	for range r.IntN(3) {
		no := 1 + r.IntN(len(d.Lines))
		lines = append(lines, stock.LineQuantity{No: no, Quantity: r.quantity(int(d.Lines[no-1].Quantity) + 1)})
	}
	return lines
}

// change of a deduction that exists.
func (r *dice) change(d *stock.Deduction) wish {
	on := func(f func(*model, *stock.Deduction) string) func(*model) string {
		return func(m *model) string { return f(m, m.deductions[d.ID]) }
	}
	switch r.IntN(5) {
	case 0:
		req := &stock.CommitRequest{ID: d.ID, Lines: r.lines(d)}
		req.KeepRest = len(req.Lines) > 0 && r.chance(50)
		return wish{ledger.AskCommit(d, req), on(func(m *model, d *stock.Deduction) string { return m.commit(d, req) }), nil}
	case 1:
		return wish{ledger.AskRelease(d), on((*model).release), nil}
	case 2:
		return wish{ledger.AskExpire(d), on((*model).expire), nil}
	case 3:
		req := &stock.ExtendRequest{ID: d.ID, Hold: time.Minute, Reacquire: r.chance(60)}
		return wish{ledger.AskExtend(d, req), on(func(m *model, d *stock.Deduction) string { return m.extend(d, req) }), nil}
	}
	req := &stock.ReturnRequest{Keyed: r.key(), ID: d.ID, Lines: r.lines(d)}
	return wish{ledger.AskReturn(d, req), on(func(m *model, d *stock.Deduction) string { return m.giveIn(d, req) }), nil}
}

func (r *dice) adjustment() *stock.AdjustRequest {
	if r.moves != nil && r.chance(20) {
		return r.moves
	}
	req := &stock.AdjustRequest{Keyed: r.key(), Item: r.item(), Kind: stock.Adjust, Delta: stock.Quantity(r.IntN(12) - 6)}
	if r.chance(40) {
		set, expected := stock.Quantity(r.IntN(9)), stock.Quantity(r.IntN(9))
		req.Kind, req.Delta, req.SetTo = stock.Count, 0, &set
		if r.chance(80) {
			req.ExpectedOnHand = &expected
		}
	}
	r.moves = req
	return req
}

func (r *dice) adjust() wish {
	req := r.adjustment()
	return wish{ledger.AskAdjust(req), func(m *model) string { return m.adjust(req) }, nil}
}

// batch makes wishes, at most one about each deduction, as the sequencer sees to.
func (r *dice) batch(s *ledger.Sight) []wish {
	var wishes []wish
	for i := range s.Deductions {
		if r.chance(70) {
			wishes = append(wishes, r.change(&s.Deductions[i]))
		}
	}
	for range r.IntN(8) {
		if r.chance(70) {
			wishes = append(wishes, r.deduct())
		} else {
			wishes = append(wishes, r.adjust())
		}
	}
	r.Shuffle(len(wishes), func(i, j int) { wishes[i], wishes[j] = wishes[j], wishes[i] })
	return wishes
}

func asked(wishes []wish) []ledger.Asked {
	ops := make([]ledger.Asked, len(wishes))
	for i, w := range wishes {
		ops[i] = w.asked
	}
	return ops
}

// situations is how many are tried; with the race detector each takes a millisecond.
const situations = 2_000

func TestDecisionsAreThoseOfTheRules(t *testing.T) {
	t.Parallel()
	words := map[string]int{}
	for seed := range uint64(situations) {
		r := &dice{Rand: rand.New(rand.NewPCG(seed, 1))}
		s, m := r.situation()
		wishes := r.batch(&s)
		got := ledger.Decide(s, asked(wishes)...)
		if got.NeedsRead {
			t.Fatalf("seed %d: what was just read has to be read again", seed)
		}
		for i, w := range wishes {
			want, is := w.model(m), told(got.Verdicts[i])
			if want == "short" {
				is = word(is)
			}
			if is != want {
				t.Fatalf("seed %d, request %d: decided %q, by the rules %q", seed, i, is, want)
			}
			words[word(want)]++
			if out := got.Verdicts[i].Outcome; is == "done" && w.deduct != nil {
				words[kindOf(out.Deduction.Lines)]++
			}
		}
		sameEffect(t, seed, &s, &got, m)
		words["low"] += len(got.Told)
		consistent(t, seed, &s, &got)
	}
	for _, word := range []string{"done", "unchanged", "replay", "reused", "order", "unknown", "short", "expired", "state", "field", "excess", "failed", "required", "limit", "partial", "split", "low"} {
		if words[word] == 0 {
			t.Errorf("no situation came to %q: %v", word, words)
		}
	}
}

// kindOf says what is unusual about the lines of a new deduction.
func kindOf(lines []stock.Line) string {
	for _, l := range lines {
		switch {
		case l.Missing > 0:
			return "partial"
		case l.No != l.RequestLine:
			return "split"
		}
	}
	return "plain"
}

func word(verdict string) string {
	for i := range len(verdict) {
		if verdict[i] == ' ' {
			return verdict[:i]
		}
	}
	return verdict
}

// sameEffect compares what is to be written with what the model came to.
func sameEffect(t *testing.T, seed uint64, s *ledger.Sight, got *ledger.Decision, m *model) {
	t.Helper()
	figures, wantFigures := map[string][2]stock.Quantity{}, map[string][2]stock.Quantity{}
	moves, wantMoves := map[string][]string{}, map[string][]string{}
	told, wantTold := map[ledger.Told]int{}, map[ledger.Told]int{}
	for _, l := range s.Items {
		name, shelf := l.Item.String(), m.shelves[l.Item]
		figures[name] = [2]stock.Quantity{l.OnHand, l.Held}
		wantFigures[name] = [2]stock.Quantity{shelf.onHand, shelf.held}
		if len(shelf.moves) > 0 {
			wantMoves[name] = shelf.moves
		}
		for _, after := range shelf.fell {
			wantTold[ledger.Told{Item: l.Item, Version: l.Version + int64(after)}]++
		}
	}
	for _, e := range got.Told {
		told[e]++
	}
	for _, c := range got.Items {
		figures[c.Item.String()] = [2]stock.Quantity{c.OnHand, c.Held}
	}
	for _, mv := range got.Moved {
		name := mv.Item.String()
		moves[name] = append(moves[name], fmt.Sprint(mv.Kind, mv.DeltaOnHand, mv.DeltaHeld))
	}
	if diff := cmp.Diff(wantFigures, figures) + cmp.Diff(wantMoves, moves) + cmp.Diff(wantTold, told) + cmp.Diff(shown(m), written(s, got)) +
		cmp.Diff(possessed(m), counted(s, got)); diff != "" {
		t.Fatalf("seed %d (-rules +decision):\n%s", seed, diff)
	}
}

// possessed is what customers have by the model, and counted as the database will have it.
func possessed(m *model) map[string]stock.Quantity {
	return maps.Collect(func(yield func(string, stock.Quantity) bool) {
		for name, units := range m.units {
			if units != 0 && !yield(name, units) {
				return
			}
		}
	})
}

func counted(s *ledger.Sight, got *ledger.Decision) map[string]stock.Quantity {
	all := map[string]stock.Quantity{}
	for _, u := range append(slices.Clone(s.Units), got.Units...) {
		if name := u.Name + " " + u.Item.String(); u.Units == 0 {
			delete(all, name)
		} else {
			all[name] = u.Units
		}
	}
	return all
}

// shown is every deduction of the model, its lines as held, committed, returned.
func shown(m *model) map[uuid.UUID]string {
	all := map[uuid.UUID]string{}
	for id, d := range m.deductions {
		all[id] = describe(d)
	}
	return all
}

func describe(d *stock.Deduction) string {
	text := string(d.State)
	for _, l := range d.Lines {
		text += fmt.Sprintf(" %d:%s %d-%d %d/%d/%d", l.RequestLine, l.Item, l.Quantity, l.Missing, l.Held, l.Committed, l.Returned)
	}
	return text
}

// written is every deduction as the database will have it.
func written(s *ledger.Sight, got *ledger.Decision) map[uuid.UUID]string {
	rows := map[uuid.UUID]*stock.Deduction{}
	for _, d := range s.Deductions {
		d.Lines = slices.Clone(d.Lines)
		rows[d.ID] = &d
	}
	for _, n := range got.New {
		rows[n.ID] = &stock.Deduction{State: n.State, Lines: n.Lines}
	}
	for _, c := range got.Deductions {
		rows[c.ID].State = c.State
	}
	for _, c := range got.Lines {
		l := &rows[c.ID].Lines[c.No-1]
		l.Held, l.Committed, l.Returned = c.Held, c.Committed, c.Returned
	}
	all := map[uuid.UUID]string{}
	for id, d := range rows {
		all[id] = describe(d)
	}
	return all
}

// consistent checks what must hold of any write, whatever the rules are.
func consistent(t *testing.T, seed uint64, s *ledger.Sight, got *ledger.Decision) {
	t.Helper()
	rows := map[stock.Item]stock.Levels{}
	for _, l := range s.Items {
		rows[l.Item] = l
	}
	before := maps.Clone(rows)
	for _, mv := range got.Moved {
		row := rows[mv.Item]
		row.OnHand += mv.DeltaOnHand
		row.Held += mv.DeltaHeld
		row.Version++
		if mv.Version != row.Version || mv.OnHand != row.OnHand || mv.Held != row.Held {
			t.Fatalf("seed %d: movement %+v does not follow: %+v", seed, mv, row)
		}
		if row.OnHand < 0 || row.Held < 0 || row.Held > row.OnHand {
			t.Fatalf("seed %d: %+v leads to %+v", seed, mv, row)
		}
		rows[mv.Item] = row
	}
	changed := 0
	for item, row := range rows {
		if row != before[item] {
			changed++
		}
	}
	if changed != len(got.Items) {
		t.Fatalf("seed %d: %d items moved, %d rows are written", seed, changed, len(got.Items))
	}
	for _, c := range got.Items {
		row := rows[c.Item]
		if c.Seen != before[c.Item].Version || c.Seen+c.Steps != row.Version || c.OnHand != row.OnHand || c.Held != row.Held {
			t.Fatalf("seed %d: row %+v, movements come to %+v", seed, c, row)
		}
	}
	granted := 0
	for _, v := range got.Verdicts {
		if told(v) == "done" {
			granted++
		}
	}
	if got.Write != (granted > 0) {
		t.Fatalf("seed %d: %d granted, anything to write: %v", seed, granted, got.Write)
	}
	for i, key := range got.Keys {
		if slices.Contains(got.Keys[:i], key) {
			t.Fatalf("seed %d: key %v is written twice", seed, key)
		}
	}
}

// TestMemoryMayOnlyGrant decides the same batches on rows that may be old: whatever is refused then is not decided
// but read, and what is decided is what the rows say.
func TestMemoryMayOnlyGrant(t *testing.T) {
	t.Parallel()
	decided, read := 0, 0
	for seed := range uint64(situations) {
		r := &dice{Rand: rand.New(rand.NewPCG(seed, 2))}
		s, _ := r.situation()
		s.Live, s.Keys, s.Deductions = nil, nil, nil // of all that, memory knows items only
		wishes := r.batch(&s)
		ops := asked(wishes)
		fresh := ledger.Decide(s, ops...)
		s.Fresh, s.Now = false, time.Time{}
		memory := ledger.Decide(s, ops...)
		refused := slices.ContainsFunc(fresh.Verdicts, func(v ledger.Verdict) bool {
			return v.Err != nil && !errors.Is(v.Err, stock.ErrKeyReused)
		}) || slices.ContainsFunc(ops, ledger.Asked.Counts) || notFirstChoice(&s, wishes, fresh.Verdicts)
		if memory.NeedsRead != refused {
			t.Fatalf("seed %d: refusals: %v, needs a reading: %v", seed, refused, memory.NeedsRead)
		}
		if memory.NeedsRead {
			read++
			continue
		}
		decided++
		if diff := cmp.Diff(fresh.Items, memory.Items) + cmp.Diff(fresh.Moved, memory.Moved); diff != "" {
			t.Fatalf("seed %d (-fresh +memory):\n%s", seed, diff)
		}
	}
	if decided == 0 || read == 0 {
		t.Errorf("%d decided, %d to be read: one side was never tried", decided, read)
	}
}

// notFirstChoice reports whether something was granted that rests on less being there, or not where it was preferred.
func notFirstChoice(s *ledger.Sight, wishes []wish, verdicts []ledger.Verdict) bool {
	exists := func(item stock.Item) bool {
		return slices.ContainsFunc(s.Items, func(l stock.Levels) bool { return l.Item == item })
	}
	for i, v := range verdicts {
		if told(v) != "done" || wishes[i].deduct == nil {
			continue
		}
		for _, l := range v.Outcome.Deduction.Lines {
			from := slices.DeleteFunc(wishes[i].deduct.Lines[l.RequestLine-1].AppendItems(nil), func(i stock.Item) bool { return !exists(i) })
			if l.Missing > 0 || l.Item != from[0] {
				return true
			}
		}
	}
	return false
}

// TestDecisionComesFirstServed: with one unit left, the first of a batch gets it, whoever it is.
func TestDecisionComesFirstServed(t *testing.T) {
	t.Parallel()
	s := ledger.Sight{Fresh: true, Items: []stock.Levels{{Item: at("A"), OnHand: 1}}}
	r := &dice{Rand: rand.New(rand.NewPCG(1, 3))}
	for n := 1; n < 50; n++ {
		batch := make([]ledger.Asked, n)
		for i := range batch {
			batch[i] = ledger.AskDeduct(order(fmt.Sprint(r.Uint64()), "A"), r.id())
		}
		for i, v := range ledger.Decide(s, batch...).Verdicts {
			if (v.Err == nil) != (i == 0) {
				t.Fatalf("of %d, number %d: %v", n, i, v.Err)
			}
		}
	}
}

// TestWantedSumsDoNotOverflow: a request is as large as it may be, and its sum is still told right.
func TestWantedSumsDoNotOverflow(t *testing.T) {
	t.Parallel()
	s := ledger.Sight{Fresh: true, Items: []stock.Levels{{Item: at("A"), OnHand: stock.MaxOnHand}, {Item: at("B")}}}
	r := &stock.DeductRequest{Keyed: keyed("k"), OrderID: "o"}
	for range stock.MaxLines - 1 {
		r.Lines = append(r.Lines, stock.WantedLine{Item: at("A"), Quantity: stock.MaxLineQuantity})
	}
	r.Lines = append(r.Lines, stock.WantedLine{Item: at("B"), Quantity: stock.MaxLineQuantity})
	got := ledger.Decide(s, ledger.AskDeduct(r, uuid.New()))
	if want := "short 999:1000000000>0"; told(got.Verdicts[0]) != want {
		t.Errorf("got %q, want %q", told(got.Verdicts[0]), want)
	}
	r.Lines = r.Lines[:stock.MaxLines-1]
	got = ledger.Decide(s, ledger.AskDeduct(r, uuid.New()))
	if want := stock.MaxOnHand - 999*stock.MaxLineQuantity; told(got.Verdicts[0]) != "done" || got.Items[0].OnHand != want {
		t.Errorf("got %q, %+v, want %d left", told(got.Verdicts[0]), got.Items, want)
	}
}

// TestRehearsalsDoNotMeet: many are decided on one reading, and none sees what another one would have done. The last one is no rehearsal.
func TestRehearsalsDoNotMeet(t *testing.T) {
	t.Parallel()
	ann := stock.Customer{Client: "shop", Name: "ann"}
	s := ledger.Sight{
		Fresh: true, Items: []stock.Levels{{Item: at("A"), OnHand: 2, Held: 1}}, LowAt: map[stock.Item]stock.Quantity{at("A"): 0},
		Units: []stock.CustomerUnits{{Customer: ann, Item: at("A"), Units: 1}},
	}
	asked := make([]ledger.Asked, 5)
	for i := range asked {
		asked[i] = ledger.AskDeduct(limited("o", "ann", 2, "A"), uuid.New())
		if i < len(asked)-1 {
			asked[i] = ledger.AskRehearsal(asked[i])
		}
	}
	got := ledger.Decide(s, asked...)
	for i, v := range got.Verdicts {
		if v.Err != nil || v.Replay {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if len(got.Keys) != 1 || len(got.New) != 1 || len(got.Moved) != 1 || len(got.Told) != 1 || len(got.Units) != 1 || got.Units[0].Units != 2 {
		t.Errorf("five would be written as %+v", got)
	}
}
