package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Limits of a lane.
const (
	// newsDelay bounds how long news wait for requests to go with. Others may be told "short" on figures of up to
	// Freshness ago in any case; a call for each commit would cost more than the requests' own calls.
	newsDelay = 10 * time.Millisecond
	// maxPending bounds the items with news that wait for a call. News beyond it are lost: the item's base grows
	// older, and the next short answer asks the ledger.
	maxPending = 10_000
	// maxPendingDrops bounds the tickets that wait to be dropped. One beyond it is left to its deadline.
	maxPendingDrops = 1 << 16
	// probeFirst and probeLast bound the pause between two looks at a node that failed.
	probeFirst = 50 * time.Millisecond
	probeLast  = 500 * time.Millisecond
)

// lane is the way to one Redis node: everything that one script call may touch. A single Redis has one lane, a
// Cluster one for each slot group. Its worker has one call on its way at a time; what arrives meanwhile gathers
// for the next one, so calls grow with the load and an idle lane sends a single request at once.
type lane struct {
	gate  *Gate
	group int           // whose node it is
	wake  chan struct{} // capacity 1: there is work
	quit  chan struct{} // closed by Close

	mu      sync.Mutex
	queue   []*ask // in order of arrival
	pending map[stock.Item]*pending
	memory  memory
	later   *time.Timer // makes what is pending due
	armed   bool        // later is running
	due     bool        // what is pending goes now, with requests or without
	drops   int         // tickets in pending
	open    bool        // the breaker: the last call or probe failed
	closed  bool
}

// pending is what the gate has to be told about an item.
type pending struct {
	levels  stock.Levels
	at      time.Time // when the ledger said so, or a moment before
	news    bool      // levels and at are set
	tickets []Ticket  // to drop
}

// ask is what a request wants from one lane. It belongs to its caller until it is queued, then to the lane until
// done is signalled or the caller abandons it.
type ask struct {
	ticket Ticket
	wants  []want
	done   chan struct{} // capacity 1, signalled once for each time it is queued
	state  atomic.Int32
	next   *ask // in the call on its way

	// The answer.
	letter letter
	reason Reason    // why there is no letter
	sent   time.Time // when the call that answered took it from the queue
}

// want is one item of a request, its lines summed up, and what the gate knows about it if it refused.
type want struct {
	item     stock.Item
	quantity stock.Quantity
	room     stock.Quantity // of an allowance: the limit
	form     form
	key      int // in the call on its way
	figures
}

// form is how much of an item a request insists on.
type form uint8

const (
	whole form = iota // all of it
	some              // what there is
	look              // any of it, somewhere: nothing is taken
)

// figures of an item after a call.
type figures struct {
	known     bool
	fresh     bool // confirmed with the ledger less than Freshness ago
	bare      bool // fresh, and no ticket counts
	available stock.Quantity
	version   int64
}

const (
	waiting   = iota // queued or in a call
	answered         // done is signalled, or about to be
	abandoned        // nobody waits: a ticket that is granted now is dropped at once
)

func newLane(g *Gate, group int) *lane {
	l := &lane{
		gate: g, group: group,
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
		pending: make(map[stock.Item]*pending),
	}
	l.later = time.AfterFunc(newsDelay, l.makeDue)
	return l
}

// enqueue an ask, or report why it cannot wait here.
func (l *lane) enqueue(a *ask) Reason {
	a.letter, a.reason = none, NoReason
	a.state.Store(waiting)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return Closed
	case l.open:
		return BreakerOpen
	case len(l.queue) >= l.gate.cfg.QueueLimit:
		return QueueFull
	}
	l.queue = append(l.queue, a)
	l.nudge()
	return NoReason
}

// wait for the answer to an ask that was queued. After Cancelled the ask may still be looked at by the lane: it
// must not be used again.
func (l *lane) wait(ctx context.Context, a *ask) Reason {
	select {
	case <-a.done:
		return a.reason
	case <-ctx.Done():
		if a.state.CompareAndSwap(waiting, abandoned) {
			return Cancelled
		}
		<-a.done
		return a.reason
	}
}

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// settle takes news in, unless newer ones are here. They go with the next call, or after newsDelay with one of
// their own.
func (l *lane) settle(levels stock.Levels, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.settle(levels, at)
	l.settleLocked(levels, at)
	if !l.armed {
		l.armed = true
		l.later.Reset(newsDelay)
	}
}

func (l *lane) settleLocked(levels stock.Levels, at time.Time) {
	if !exact(levels.Version) || !exact(int64(levels.Available())) {
		l.gate.metrics.lost.Inc()
		return
	}
	p := l.pendingLocked(levels.Item)
	if p == nil || p.news && older(levels, at, p.levels, p.at) {
		return
	}
	p.levels, p.at, p.news = levels, at, true
}

// exact reports whether Lua, whose numbers are doubles, can tell n from its neighbours.
func exact(n int64) bool { return -1<<53 < n && n < 1<<53 }

// older reports whether news a, told at aAt, say less than news b.
func older(a stock.Levels, aAt time.Time, b stock.Levels, bAt time.Time) bool {
	if defect.On(defect.SettleWithoutVersion) {
		return false
	}
	if a.Epoch != b.Epoch {
		return a.Epoch < b.Epoch
	}
	if a.Version != b.Version {
		return a.Version < b.Version
	}
	return aAt.Before(bAt)
}

// drop a ticket from an item. Without news of the item it may free units that others want, and goes at once.
// After news of it, the ticket counts no longer once these are told, and both can wait.
func (l *lane) drop(t Ticket, item stock.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.dropLocked(t, item); p != nil && !p.news {
		l.due = true
		l.nudge()
	}
}

func (l *lane) makeDue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = true
	l.nudge()
}

// recall what is known of an item without a call.
func (l *lane) recall(line *stock.WantedLine) (ample, short bool, f figures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.memory.get(line.Item)
	if !ok {
		return false, false, figures{}
	}
	return r.ample(line, l.gate.cfg.Ample), r.refuses(line), r.short
}

func (l *lane) dropLocked(t Ticket, item stock.Item) *pending {
	if l.drops >= maxPendingDrops {
		return nil
	}
	p := l.pendingLocked(item)
	if p != nil {
		p.tickets = append(p.tickets, t)
		l.drops++
	}
	return p
}

// pendingLocked finds or makes the entry of an item; nil when there are too many.
func (l *lane) pendingLocked(item stock.Item) *pending {
	p := l.pending[item]
	if p == nil {
		if len(l.pending) >= maxPending {
			l.gate.metrics.lost.Inc()
			return nil
		}
		p = new(pending)
		l.pending[item] = p
	}
	return p
}

func (l *lane) pendingItems() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// close lets the worker finish what is queued and end.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed, l.due = true, true
		l.later.Stop()
		close(l.quit)
	}
}

// run is the worker. It ends after close, when everything was sent or a call failed.
func (l *lane) run() {
	b := newBatch(l.gate)
	for closing := false; !closing; {
		select {
		case <-l.wake:
		case <-l.quit:
			closing = true
		}
		for l.collect(b) {
			err := l.send(b)
			if err == nil {
				continue
			}
			l.fail(b, err)
			if closing || !l.heal() {
				return
			}
		}
	}
}

// collect fills b with what waits: requests in order, the news of their items, then other news. Without requests
// news wait until they are due.
func (l *lane) collect(b *batch) bool {
	b.reset()
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := 0
	l.armed = false
	for _, a := range l.queue {
		if a.state.Load() != abandoned {
			if !b.fits(a) {
				break
			}
			b.add(a)
		}
		taken++
	}
	rest := copy(l.queue, l.queue[taken:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if len(b.asks) == 0 && !l.due {
		return false
	}
	for i := range b.items {
		l.fetchLocked(b, i)
	}
	riders := 0
	for item := range l.pending {
		if riders >= maxRiders || b.drops >= maxDrops {
			break
		}
		l.fetchLocked(b, b.key(item))
		riders++
	}
	if len(l.pending) == 0 {
		l.due = false
	}
	return len(b.items) > 0
}

// fetchLocked moves what is pending on an item of b into b, as far as there is room.
func (l *lane) fetchLocked(b *batch, i int) {
	it := &b.items[i]
	p := l.pending[it.item]
	if p == nil || it.pending != nil {
		return
	}
	room := maxDrops - b.drops
	if len(p.tickets) > room {
		l.pending[it.item] = &pending{tickets: append([]Ticket(nil), p.tickets[room:]...)}
		p.tickets = p.tickets[:room]
	} else {
		delete(l.pending, it.item)
	}
	it.pending = p
	b.drops += len(p.tickets)
	l.drops -= len(p.tickets)
}

// send b and answer everybody in it; an error leaves them unanswered.
func (l *lane) send(b *batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout())
	defer cancel()
	m := l.gate.metrics
	b.encode()
	reply, err := l.execute(ctx, b)
	m.call.Observe(time.Since(b.sent).Seconds())
	m.batch.Observe(float64(len(b.asks)))
	if err != nil {
		return err
	}
	if err := b.decode(reply); err != nil {
		return err
	}
	l.remember(b)
	for _, a := range b.asks {
		granted := a.letter == granted // an ask that was answered is its caller's
		a.next = nil
		if a.state.CompareAndSwap(waiting, answered) {
			a.done <- struct{}{}
		} else if granted {
			for i := range a.wants {
				l.drop(a.ticket, a.wants[i].item)
			}
		}
	}
	return nil
}

// remember what was refused with nobody else's tickets in the way.
func (l *lane) remember(b *batch) {
	for i := range b.items {
		if it := &b.items[i]; it.bare {
			l.mu.Lock()
			l.memory.refused(it.item, it.figures, b.sent)
			l.mu.Unlock()
		}
	}
}

// execute the script by its hash, and with its text where the node does not have it.
func (l *lane) execute(ctx context.Context, b *batch) (string, error) {
	node, err := l.node(ctx)
	if err != nil {
		return "", err
	}
	cmd := redis.NewStringCmd(ctx, b.args...)
	err = node.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		b.args[0], b.args[1] = "eval", script
		cmd = redis.NewStringCmd(ctx, b.args...)
		err = node.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// node is the master that has the lane's items. The cluster client's own way of sending would repeat a script
// whose reply was lost.
func (l *lane) node(ctx context.Context) (*redis.Client, error) {
	if l.gate.cluster == nil {
		return l.gate.single, nil
	}
	return l.gate.cluster.MasterForKey(ctx, probeKey(l.gate.cfg.Prefix, l.group))
}

// fail opens the breaker: everybody who waits is sent to the ledger. What b told is kept for the next call, and
// its requests' tickets are dropped with it, because it may have been applied and only the reply lost.
func (l *lane) fail(b *batch, err error) {
	kind := failureOf(err)
	l.gate.metrics.failures[kind].Inc()
	l.gate.metrics.open.Inc()
	l.gate.cfg.Logger.Warn("gate bypassed", "group", l.group, "kind", kind.String(), "error", err)
	l.mu.Lock()
	l.open = true
	queue := l.queue
	l.queue = nil
	for i := range b.items {
		it := &b.items[i]
		if it.pending == nil {
			continue
		}
		if kind == refused { // by its content: it would be refused for ever
			l.gate.metrics.lost.Inc()
			continue
		}
		if it.pending.news {
			l.settleLocked(it.pending.levels, it.pending.at)
		}
		for _, t := range it.pending.tickets {
			l.dropLocked(t, it.item)
		}
	}
	for _, a := range b.asks {
		for i := range a.wants {
			l.dropLocked(a.ticket, a.wants[i].item)
		}
	}
	l.mu.Unlock()
	reject(b.asks, CallFailed)
	reject(queue, BreakerOpen)
}

func reject(asks []*ask, r Reason) {
	for _, a := range asks {
		if a.state.CompareAndSwap(waiting, answered) {
			a.letter, a.reason = none, r
			a.done <- struct{}{}
		}
	}
}

// heal looks at the node until it is well again, or reports that the lane was closed.
func (l *lane) heal() bool {
	began := time.Now()
	pause := time.NewTimer(probeFirst)
	defer pause.Stop()
	for wait := probeFirst; ; wait = min(2*wait, probeLast) {
		pause.Reset(wait)
		select {
		case <-pause.C:
		case <-l.quit:
			return false
		}
		if err := l.probe(); err != nil {
			l.gate.cfg.Logger.Debug("gate probe", "group", l.group, "error", err)
			continue
		}
		l.gate.metrics.open.Dec()
		l.gate.cfg.Logger.Info("gate back", "group", l.group, "after", time.Since(began))
		l.mu.Lock()
		l.open, l.due = false, true
		l.mu.Unlock()
		return true
	}
}

// probe asks the node whether it is a master, takes a write (memory, disk and replicas permitting), and has the
// script, all within the time of a call.
func (l *lane) probe() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.gate.cfg.CallTimeout)
	defer cancel()
	node, err := l.node(ctx)
	if err != nil {
		return err
	}
	if err = probeNode(ctx, node, probeKey(l.gate.cfg.Prefix, l.group)); err != nil && l.gate.cluster != nil {
		l.gate.cluster.ReloadState(ctx) // the group may have moved to another node
	}
	return err
}

func probeNode(ctx context.Context, node *redis.Client, key string) error {
	role, err := node.Do(ctx, "ROLE").Slice()
	if err != nil {
		return fmt.Errorf("role: %w", err)
	}
	if len(role) == 0 || role[0] != "master" {
		return errors.New("not a master")
	}
	if err := node.Set(ctx, key, "", time.Second).Err(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := node.ScriptLoad(ctx, script).Err(); err != nil {
		return fmt.Errorf("load script: %w", err)
	}
	return nil
}

// failure is a kind of failed call.
type failure uint8

const (
	timedOut failure = iota // the reply did not come in time; the call may have been applied
	cut                     // the connection could not be made or broke; the call may have been applied
	unready                 // the node answered that it cannot now: loading, a replica, out of memory, moved …
	refused                 // the node or we cannot understand what was said

	failures
)

func (f failure) String() string {
	return [failures]string{"timeout", "connection", "unready", "refused"}[f]
}

func failureOf(err error) failure {
	var reply redis.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errBadReply):
		return refused
	case errors.As(err, &reply):
		for _, prefix := range [...]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK",
			"TRYAGAIN", "OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOSCRIPT", "NOAUTH", "NOPERM"} {
			if redis.HasErrorPrefix(err, prefix) {
				return unready
			}
		}
		return refused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return timedOut
	default:
		return cut
	}
}
