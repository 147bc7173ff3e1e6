package gate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// request is one Take: its lines by lane and item. It is used again.
type request struct {
	gate  *Gate
	asks  []*ask // by lane; those without wants take no part
	lines []stock.WantedLine
	terms Terms
	many  bool               // so many wants that index is used
	index map[stock.Item]int // of a request with many lines: place among its lane's wants

	place   int    // among the requests that are asked for together
	queued  uint32 // a bit for each lane it waits for
	reason  Reason // the first one why a lane did not decide
	verdict Answer // in the end
}

func newRequest(g *Gate) *request {
	r := &request{gate: g, asks: make([]*ask, len(g.lanes)), index: make(map[stock.Item]int)}
	for i := range r.asks {
		r.asks[i] = newAsk()
	}
	return r
}

func newAsk() *ask { return &ask{done: make(chan struct{}, 1)} }

func (r *request) reset() {
	for _, a := range r.asks {
		clear(a.wants)
		a.wants, a.letter, a.reason = a.wants[:0], none, NoReason
	}
	clear(r.index)
	r.lines, r.terms, r.verdict = nil, Terms{}, Answer{}
}

// ask has the lanes and the ledger decide requests, each for itself.
func (g *Gate) ask(ctx context.Context, all []*request) {
	open := make([]*request, 0, len(all))
	for _, r := range all {
		if r.verdict.Reason != Invalid {
			open = append(open, r)
		}
	}
	for range maxAsks {
		for _, r := range open {
			r.enqueue()
		}
		var items []stock.Item
		var sent time.Time
		open, items, sent = settled(ctx, open)
		if len(open) == 0 {
			return
		}
		missing, err := g.confirmAll(ctx, items, sent)
		if err != nil {
			for _, r := range open {
				r.end(bypass(confirmReason(ctx, err)))
			}
			return
		}
		open = slices.DeleteFunc(open, func(r *request) bool {
			answer, ok := r.unknown(missing)
			if ok {
				r.end(answer)
			}
			return ok
		})
	}
	for _, r := range open {
		r.end(bypass(Unsettled))
	}
}

// settled waits for requests that are queued, and ends those that are decided. Of the others it tells which items have
// to be confirmed, and when the oldest call that said so was sent.
func settled(ctx context.Context, queued []*request) (open []*request, items []stock.Item, sent time.Time) {
	open = queued[:0]
	for _, r := range queued {
		if reason := r.await(ctx); reason != NoReason {
			r.end(bypass(reason))
			continue
		}
		doubtful, at := r.doubtful()
		if len(doubtful) == 0 {
			r.end(r.answer())
			continue
		}
		if sent.IsZero() || at.Before(sent) {
			sent = at
		}
		items = append(items, doubtful...)
		open = append(open, r)
	}
	return open, items, sent
}

// confirmAll is [confirmer.confirm] for as many items as there are.
func (g *Gate) confirmAll(ctx context.Context, items []stock.Item, sent time.Time) (missing []stock.Item, err error) {
	for some := range slices.Chunk(items, maxReading) {
		none, err := g.confirm.confirm(ctx, some, sent)
		if err != nil {
			return nil, err
		}
		missing = append(missing, none...)
	}
	return missing, nil
}

// end notes the verdict, and gives back the tickets of a request that did not get all of them.
func (r *request) end(a Answer) {
	r.verdict = a
	if a.Verdict != Granted {
		r.giveBack()
	}
}

func confirmReason(ctx context.Context, err error) Reason {
	switch {
	case ctx.Err() != nil:
		return Cancelled
	case errors.Is(err, errClosed):
		return Closed
	default:
		return NotConfirmed
	}
}

// manyLines is from where on a map finds a line's item faster than looking at all of them.
const manyLines = 16

// split the lines by lane, and sum up those of one item. It ends a request of no lines that could be decided about.
func (r *request) split(w *Wish) {
	r.lines, r.terms = w.Lines, w.Terms
	if len(r.lines) == 0 || len(r.lines) > stock.MaxLines {
		r.verdict = bypass(Invalid)
		return
	}
	r.many = len(r.lines) >= manyLines || r.optional() || r.terms.Limit > 0
	firm := false
	for i := range r.lines {
		line := &r.lines[i]
		if line.Quantity < 1 || line.Quantity > stock.MaxLineQuantity {
			r.verdict = bypass(Invalid)
			return
		}
		if line.Sourcing != nil {
			continue
		}
		firm = true
		r.want(w.Ticket, want{item: line.Item, quantity: line.Quantity, form: r.form()})
		if r.terms.Limit > 0 {
			r.want(w.Ticket, want{item: allowance(line.Item, r.terms.Customer), quantity: line.Quantity, room: r.terms.Limit})
		}
	}
	if !firm {
		r.lookAround(w.Ticket)
	}
}

// lookAround is for a request of which every line may be taken from several locations.
func (r *request) lookAround(ticket Ticket) {
	for i := range r.lines {
		for _, item := range r.lines[i].AppendItems(nil) {
			r.want(ticket, want{item: item, quantity: r.lines[i].Quantity, form: look})
		}
	}
	if !slices.ContainsFunc(r.asks, func(a *ask) bool { return len(a.wants) > 0 }) {
		r.verdict = bypass(Invalid)
	}
}

// form of lines that insist on their location.
func (r *request) form() form {
	if r.terms.Partial {
		return some
	}
	return whole
}

// optional reports whether there are items that the request may do without.
func (r *request) optional() bool {
	return r.terms.Partial || r.lines[0].Sourcing != nil
}

// want some of an item, or some more.
func (r *request) want(ticket Ticket, more want) {
	if w := r.find(more.item); w != nil {
		w.quantity += more.quantity
		return
	}
	a := r.asks[r.gate.lane(more.item)]
	a.ticket = ticket
	a.wants = append(a.wants, more)
	if r.many {
		r.index[more.item] = len(a.wants) - 1
	}
}

// find what the request wants of an item, so far.
func (r *request) find(item stock.Item) *want {
	wants := r.asks[r.gate.lane(item)].wants
	if r.many {
		if i, ok := r.index[item]; ok {
			return &wants[i]
		}
		return nil
	}
	for i := range wants {
		if wants[i].item == item {
			return &wants[i]
		}
	}
	return nil
}

// enqueue the request with every lane that has not granted its part.
func (r *request) enqueue() {
	r.queued, r.reason = 0, NoReason
	for i, a := range r.asks {
		if len(a.wants) == 0 || a.letter == granted {
			continue
		}
		if reason := r.gate.lanes[i].enqueue(a); reason != NoReason {
			r.note(reason)
			continue
		}
		r.queued |= 1 << i
	}
}

// await every lane that the request waits for, and report why one did not decide.
func (r *request) await(ctx context.Context) Reason {
	for i, a := range r.asks {
		if r.queued&(1<<i) == 0 {
			continue
		}
		reason := r.gate.lanes[i].wait(ctx, a)
		if reason == Cancelled {
			r.asks[i] = newAsk() // the lane keeps the one that was abandoned
		}
		r.note(reason)
	}
	return r.reason
}

func (r *request) note(reason Reason) {
	if r.reason == NoReason {
		r.reason = reason
	}
}

// doubtful are the items whose figures refuse the request but have to be confirmed first, and when the oldest of
// the calls that said so was sent.
func (r *request) doubtful() (items []stock.Item, sent time.Time) {
	for _, a := range r.asks {
		if a.letter == shared {
			return nil, time.Time{}
		}
	}
	for _, a := range r.asks {
		if a.letter != short {
			continue
		}
		for i := range a.wants {
			if w := &a.wants[i]; w.short() && !w.fresh && (w.form == whole || !r.served()) {
				items = append(items, w.item)
				if sent.IsZero() || a.sent.Before(sent) {
					sent = a.sent
				}
			}
		}
	}
	return items, sent
}

// short reports whether the item, as far as it is known, cannot serve what is wanted of it.
func (w *want) short() bool {
	need := w.quantity
	if w.form != whole {
		need = 1
	}
	return !w.known || w.available+w.room < need
}

// answer of a request that every lane has decided.
func (r *request) answer() Answer {
	verdict := Granted
	for _, a := range r.asks {
		switch a.letter {
		case shared:
			return Answer{Verdict: Shared}
		case short:
			verdict = Short
		}
	}
	if verdict == Granted {
		return Answer{Verdict: Granted}
	}
	over := r.limited()
	switch {
	case over != nil:
		return Answer{Verdict: Limited, Limited: over}
	case r.served():
		return Answer{Verdict: Granted}
	}
	answer := Answer{Verdict: Short}
	for i := range r.lines {
		for _, item := range r.lines[i].AppendItems(nil) {
			if w := r.find(item); w != nil && r.lacks(w) {
				answer.Short = append(answer.Short, stock.ShortLine{
					Line: i, Item: item, Requested: w.quantity, Available: w.available, Version: w.version,
				})
			}
		}
	}
	return answer
}

// lacks reports whether w is a reason for a refusal.
func (r *request) lacks(w *want) bool {
	return r.asks[r.gate.lane(w.item)].letter == short && w.short()
}

// limited are the lines of which the customer would have too much.
func (r *request) limited() []stock.LimitLine {
	if r.terms.Limit == 0 {
		return nil
	}
	var over []stock.LimitLine
	for i := range r.lines {
		item := r.lines[i].Item
		if w := r.find(allowance(item, r.terms.Customer)); r.lacks(w) {
			over = append(over, stock.LimitLine{
				Line: i, Item: item, Requested: w.quantity, Has: -w.available, Limit: r.terms.Limit,
			})
		}
	}
	return over
}

// unknown is the answer when lines want items that do not exist, if some do. Whoever could do without them is passed on.
func (r *request) unknown(missing []stock.Item) (answer Answer, ok bool) {
	answer = Answer{Verdict: UnknownItem}
	for i := range r.lines {
		for _, item := range r.lines[i].AppendItems(nil) {
			if slices.Contains(missing, item) {
				answer.Unknown = append(answer.Unknown, stock.UnknownLine{Line: i, Item: item})
			}
		}
	}
	if answer.Unknown != nil && r.optional() {
		return bypass(Optional), true
	}
	return answer, answer.Unknown != nil
}

// served reports whether a request that takes what there is got some, on another lane than the one that has nothing.
func (r *request) served() bool {
	return r.optional() && slices.ContainsFunc(r.asks, func(a *ask) bool { return a.letter == granted })
}

// giveBack the tickets that some lanes granted to a request that failed on others.
func (r *request) giveBack() {
	for i, a := range r.asks {
		if a.letter != granted {
			continue
		}
		for j := range a.wants {
			r.gate.lanes[i].drop(a.ticket, a.wants[j].item)
		}
	}
}
