package ledger

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-stock/holdfast/internal/defect"
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
	about  []*deductionRow // the deductions it is about, as far as they exist already
	fenced bool            // it is made under a fence
	queued time.Time
	place  atomic.Int32
	done   chan result // receives exactly one result once taken
}

// sequencer lets requests gather while a batch is on its way, and hands out batches so that an item is in at
// most one of them at a time and nobody overtakes on an item. There is no timer: a free taker gets what is
// there.
type sequencer struct {
	mu      sync.Mutex
	idle    []chan struct{} // takers that wait, the last to come first to go: its session is warm
	queue   []*request
	lines   int                     // of the requests in queue
	busy    map[stock.Item]struct{} // items of batches on their way
	passed  map[stock.Item]struct{} // scratch of take: items of requests it passed over
	closed  bool
	metrics *metrics
}

func newSequencer(m *metrics) *sequencer {
	return &sequencer{busy: make(map[stock.Item]struct{}), passed: make(map[stock.Item]struct{}), metrics: m}
}

// submit queues an operation; [stock.ErrOverloaded] when too much is waiting.
func (s *sequencer) submit(op operation) (*request, error) {
	r := newRequest(op)
	s.mu.Lock()
	defer s.mu.Unlock()
	return r, s.enqueueLocked(r)
}

// submitAll queues operations together, in their order. One that does not fit in has its refusal already.
func (s *sequencer) submitAll(ops []operation) []*request {
	requests := make([]*request, len(ops))
	for i, op := range ops {
		requests[i] = newRequest(op)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range requests {
		if err := s.enqueueLocked(r); err != nil {
			r.done <- refuse(err)
		}
	}
	return requests
}

func newRequest(op operation) *request {
	n := op.names()
	return &request{
		op: op, items: op.touches(), about: n.deductions, fenced: n.fence.Key != "", queued: time.Now(), done: make(chan result, 1),
	}
}

func (s *sequencer) enqueueLocked(r *request) error {
	if s.closed {
		return stock.ErrLedgerUnavailable
	}
	if len(s.queue) >= maxWaiting || s.lines+len(r.items) > maxWaitingLines {
		s.metrics.shed.Inc()
		return stock.ErrOverloaded
	}
	s.queue = append(s.queue, r)
	s.lines += len(r.items)
	if !s.blockedLocked(r, s.busy) {
		s.wakeLocked()
	}
	return nil
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
		if defect.On(defect.ReleaseOnUnknown) {
			return refuse(stock.ErrOverloaded)
		}
		return refuse(stock.ErrUnknownOutcome)
	}
}

// take frees the items of the taker's last batch, waits for work and moves the oldest requests that may go
// together into the batch it returns, whose memory is reused. It returns false once the sequencer is closed and
// empty. What the last batch blocked goes to the same taker, in the same breath: its session is warm, and a
// hot item does not wander between sessions.
func (s *sequencer) take(batch []*request) ([]*request, bool) {
	wake := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeLocked(batch)
	for {
		var full bool
		if batch, full = s.gatherLocked(batch[:0]); len(batch) > 0 {
			if full {
				s.wakeLocked() // what did not fit may go with another taker
			}
			return batch, true
		}
		if s.closed && len(s.queue) == 0 {
			return nil, false
		}
		s.idle = append(s.idle, wake)
		s.mu.Unlock()
		<-wake
		s.mu.Lock()
	}
}

func (s *sequencer) freeLocked(batch []*request) {
	for _, r := range batch {
		for _, item := range r.items {
			delete(s.busy, item)
		}
	}
	if s.closed {
		s.wakeAllLocked()
	}
}

// wakeLocked wakes one taker, if one waits.
func (s *sequencer) wakeLocked() {
	if last := len(s.idle) - 1; last >= 0 {
		s.idle[last] <- struct{}{}
		s.idle = s.idle[:last]
	}
}

// gatherLocked moves requests from the queue into a batch. It reports whether the batch is full: whether there may be
// one that could go now but did not fit.
func (s *sequencer) gatherLocked(batch []*request) (_ []*request, full bool) {
	clear(s.passed)
	kept, lines := 0, 0
	for i, r := range s.queue {
		if len(batch) >= maxBatchRequests || i >= maxScan {
			full = len(batch) >= maxBatchRequests
			kept += copy(s.queue[kept:], s.queue[i:])
			break
		}
		switch {
		case r.place.Load() == dropped:
			s.lines -= len(r.items)
			continue
		case s.blockedLocked(r, s.busy) || s.blockedLocked(r, s.passed) || sameDeduction(batch, r):
			s.passLocked(r)
		case len(batch) > 0 && lines+len(r.items) > maxBatchLines:
			full = true
			s.passLocked(r)
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
	return batch, full
}

// passLocked blocks the items of a request that stays in the queue for those behind it.
func (s *sequencer) passLocked(r *request) {
	for _, item := range r.items {
		s.passed[item] = struct{}{}
	}
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

// sameDeduction reports whether the batch already has an operation on a deduction of the request: a batch
// changes a deduction once at most.
func sameDeduction(batch []*request, r *request) bool {
	for _, mine := range r.about {
		for _, other := range batch {
			for _, theirs := range other.about {
				if mine.ID == theirs.ID {
					return true
				}
			}
		}
	}
	return false
}

// close refuses new requests; what waits is still taken.
func (s *sequencer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wakeAllLocked()
}

func (s *sequencer) wakeAllLocked() {
	for len(s.idle) > 0 {
		s.wakeLocked()
	}
}
