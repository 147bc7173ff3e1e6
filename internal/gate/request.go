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
	r.lines, r.verdict = nil, Answer{}
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
			answer := r.unknown(missing)
			if answer.Unknown == nil {
				return false
			}
			r.end(answer)
			return true
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
func (r *request) split(ticket Ticket, lines []stock.WantedLine) {
	if len(lines) == 0 || len(lines) > stock.MaxLines {
		r.verdict = bypass(Invalid)
		return
	}
	r.lines = lines
	for i := range lines {
		line := &lines[i]
		if line.Quantity < 1 || line.Quantity > stock.MaxLineQuantity {
			r.verdict = bypass(Invalid)
			return
		}
		if w := r.find(line.Item); w != nil {
			w.quantity += line.Quantity
			continue
		}
		a := r.asks[r.gate.lane(line.Item)]
		a.ticket = ticket
		a.wants = append(a.wants, want{item: line.Item, quantity: line.Quantity})
		if len(lines) >= manyLines {
			r.index[line.Item] = len(a.wants) - 1
		}
	}
}

// find what the request wants of an item, so far.
func (r *request) find(item stock.Item) *want {
	wants := r.asks[r.gate.lane(item)].wants
	if len(r.lines) >= manyLines {
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
			if w := &a.wants[i]; w.short() && !w.fresh {
				items = append(items, w.item)
				if sent.IsZero() || a.sent.Before(sent) {
					sent = a.sent
				}
			}
		}
	}
	return items, sent
}

// short reports whether the item, as far as it is known, cannot serve what is wanted.
func (w *want) short() bool { return !w.known || w.available < w.quantity }

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
	answer := Answer{Verdict: Short}
	for i := range r.lines {
		w := r.find(r.lines[i].Item)
		if r.asks[r.gate.lane(w.item)].letter == short && w.short() {
			answer.Short = append(answer.Short, stock.ShortLine{
				Line: i, Item: w.item, Requested: w.quantity, Available: w.available, Version: w.version,
			})
		}
	}
	return answer
}

func (r *request) unknown(missing []stock.Item) Answer {
	answer := Answer{Verdict: UnknownItem}
	for i := range r.lines {
		if slices.Contains(missing, r.lines[i].Item) {
			answer.Unknown = append(answer.Unknown, stock.UnknownLine{Line: i, Item: r.lines[i].Item})
		}
	}
	return answer
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
