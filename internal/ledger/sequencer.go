package ledger

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Limits of the sequencer.
const (
	// maxBatchRequests and maxBatchLines bound one statement: beyond a few hundred rows the fixed cost of a
	// commit is spread thin enough, and a longer batch only makes its members wait for one another.
	maxBatchRequests = 512
	maxBatchLines    = 2 * stock.MaxLines
	// maxWaiting bounds what may wait, in requests and in lines; what is beyond is shed at once.
	maxWaiting      = 8192
	maxWaitingLines = 64 * stock.MaxLines
	// maxScan bounds how far past blocked requests one taker looks.
	maxScan = 2048
)

// Where a request is.
const (
	waiting int32 = iota
	taken         // in a batch: it runs to its end
	dropped       // its caller left before it was in a batch
)

// request is an operation on its way through the sequencer.
type request struct {
	op     operation
	items  []stock.Item
	about  *deductionRow // the deduction it is about, if it exists already
	queued time.Time
	place  atomic.Int32
	done   chan result // receives exactly one result once taken
}

// sequencer lets requests gather while a batch is on its way, and hands out batches so that an item is in at
// most one of them at a time and nobody overtakes on an item. There is no timer: a free taker gets what is
// there.
type sequencer struct {
	mu      sync.Mutex
	ready   sync.Cond // signalled when there may be something to take; uses mu
	queue   []*request
	lines   int                     // of the requests in queue
	busy    map[stock.Item]struct{} // items of batches on their way
	passed  map[stock.Item]struct{} // scratch of take: items of requests it passed over
	closed  bool
	metrics *metrics
}

func newSequencer(m *metrics) *sequencer {
	s := &sequencer{busy: make(map[stock.Item]struct{}), passed: make(map[stock.Item]struct{}), metrics: m}
	s.ready.L = &s.mu
	return s
}

// submit queues an operation; [stock.ErrOverloaded] when too much is waiting.
func (s *sequencer) submit(op operation) (*request, error) {
	r := &request{op: op, items: op.touches(), about: op.names().deduction, queued: time.Now(), done: make(chan result, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, stock.ErrLedgerUnavailable
	}
	if len(s.queue) >= maxWaiting || s.lines+len(r.items) > maxWaitingLines {
		s.metrics.shed.Inc()
		return nil, stock.ErrOverloaded
	}
	s.queue = append(s.queue, r)
	s.lines += len(r.items)
	if !s.blockedLocked(r, s.busy) {
		s.ready.Signal()
	}
	return r, nil
}

// wait for a request's result. A caller that leaves before its request is in a batch takes it out, and
// nothing was done; one that leaves later does not know the outcome.
func (s *sequencer) wait(ctx context.Context, r *request) result {
	select {
	case res := <-r.done:
		return res
	case <-ctx.Done():
	}
	if r.place.CompareAndSwap(waiting, dropped) {
		return refuse(stock.ErrOverloaded)
	}
	select {
	case res := <-r.done:
		return res
	default:
		return refuse(stock.ErrUnknownOutcome)
	}
}

// take waits for work and moves the oldest requests that may go together into batch. It returns false once
// the sequencer is closed and empty.
func (s *sequencer) take(batch []*request) ([]*request, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if batch = s.gatherLocked(batch[:0]); len(batch) > 0 {
			if len(s.queue) > 0 {
				s.ready.Signal()
			}
			return batch, true
		}
		if s.closed && len(s.queue) == 0 {
			s.ready.Broadcast()
			return nil, false
		}
		s.ready.Wait()
	}
}

func (s *sequencer) gatherLocked(batch []*request) []*request {
	clear(s.passed)
	kept, lines := 0, 0
	for i, r := range s.queue {
		if len(batch) >= maxBatchRequests || i >= maxScan {
			kept += copy(s.queue[kept:], s.queue[i:])
			break
		}
		switch {
		case r.place.Load() == dropped:
			s.lines -= len(r.items)
			continue
		case s.blockedLocked(r, s.busy) || s.blockedLocked(r, s.passed) || sameDeduction(batch, r) ||
			len(batch) > 0 && lines+len(r.items) > maxBatchLines:
			for _, item := range r.items {
				s.passed[item] = struct{}{}
			}
		case r.place.CompareAndSwap(waiting, taken):
			batch = append(batch, r)
			lines += len(r.items)
			s.lines -= len(r.items)
			continue
		default:
			s.lines -= len(r.items)
			continue
		}
		s.queue[kept] = r
		kept++
	}
	clear(s.queue[kept:])
	s.queue = s.queue[:kept]
	for _, r := range batch {
		for _, item := range r.items {
			s.busy[item] = struct{}{}
		}
	}
	return batch
}

func (s *sequencer) blockedLocked(r *request, items map[stock.Item]struct{}) bool {
	if len(items) == 0 {
		return false
	}
	for _, item := range r.items {
		if _, ok := items[item]; ok {
			return true
		}
	}
	return false
}

// sameDeduction reports whether the batch already has an operation on the request's deduction: a batch
// changes a deduction once at most.
func sameDeduction(batch []*request, r *request) bool {
	if r.about == nil {
		return false
	}
	for _, other := range batch {
		if other.about != nil && other.about.ID == r.about.ID {
			return true
		}
	}
	return false
}

// finish frees a batch's items for the next one.
func (s *sequencer) finish(batch []*request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		for _, item := range r.items {
			delete(s.busy, item)
		}
	}
	if len(s.queue) > 0 {
		s.ready.Signal()
	}
}

// close refuses new requests; what waits is still taken.
func (s *sequencer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.ready.Broadcast()
}
