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
	r.lines = nil
}

func (r *request) take(ctx context.Context, ticket Ticket, lines []stock.WantedLine) Answer {
	if !r.split(ticket, lines) {
		return bypass(Invalid)
	}
	for range maxAsks {
		if reason := r.put(ctx); reason != NoReason {
			r.giveBack()
			return bypass(reason)
		}
		items, sent := r.doubtful()
		if len(items) == 0 {
			return r.answer()
		}
		missing, err := r.gate.confirm.confirm(ctx, items, sent)
		if err != nil {
			r.giveBack()
			return bypass(confirmReason(ctx, err))
		}
		if len(missing) > 0 {
			r.giveBack()
			return r.unknown(missing)
		}
	}
	r.giveBack()
	return bypass(Unsettled)
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

// split the lines by lane, and sum up those of one item; false when they are no lines to decide about.
func (r *request) split(ticket Ticket, lines []stock.WantedLine) bool {
	if len(lines) == 0 || len(lines) > stock.MaxLines {
		return false
	}
	r.lines = lines
	for i := range lines {
		line := &lines[i]
		if line.Quantity < 1 || line.Quantity > stock.MaxLineQuantity {
			return false
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
	return true
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

// put the request to every lane that has not granted its part, and wait for all of them.
func (r *request) put(ctx context.Context) Reason {
	var first Reason
	note := func(reason Reason) {
		if first == NoReason {
			first = reason
		}
	}
	queued := uint32(0) // a bit for each lane
	for i, a := range r.asks {
		if len(a.wants) == 0 || a.letter == granted {
			continue
		}
		if reason := r.gate.lanes[i].enqueue(a); reason != NoReason {
			note(reason)
			continue
		}
		queued |= 1 << i
	}
	for i, a := range r.asks {
		if queued&(1<<i) == 0 {
			continue
		}
		reason := r.gate.lanes[i].wait(ctx, a)
		if reason == Cancelled {
			r.asks[i] = newAsk() // the lane keeps the one that was abandoned
		}
		note(reason)
	}
	return first
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
			r.giveBack() // what lanes without that ticket granted
			return Answer{Verdict: Shared}
		case short:
			verdict = Short
		}
	}
	if verdict == Granted {
		return Answer{Verdict: Granted}
	}
	r.giveBack()
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
