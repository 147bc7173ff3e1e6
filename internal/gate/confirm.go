package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

var errClosed = errors.New("the gate is closed")

// maxReading bounds the items of one call of [Config.Confirm].
const maxReading = stock.MaxLines

// maxRecent bounds what a confirmer remembers of what it told; forgetting costs one more look into the ledger.
const maxRecent = 100_000

// confirmer asks the ledger about items, for all requests of the process together: one call at a time, about
// everything that gathered meanwhile.
type confirmer struct {
	gate   *Gate
	ctx    context.Context // ends with close; of the readings, which outlive every single request
	cancel context.CancelFunc
	work   sync.WaitGroup // the reading goroutine, there while something is to be read

	mu      sync.Mutex
	current *reading                 // on its way
	waiting []*reading               // after it, in order; only the last one still takes items
	recent  map[stock.Item]time.Time // when the gate was last told what a reading found, for a second or two
	before  map[stock.Item]time.Time // the older half of recent
	turned  time.Time                // when recent became empty
	closed  bool
}

// reading is one call of Config.Confirm.
type reading struct {
	asked   map[stock.Item]bool // about what; true once it was found
	started time.Time           // set when it becomes the current one
	done    chan struct{}       // closed when asked and err are final
	err     error
}

func newConfirmer(g *Gate) *confirmer {
	c := &confirmer{gate: g, recent: make(map[stock.Item]time.Time), turned: time.Now()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// confirm has the ledger asked about items and the gate told, unless that happened since the time sent. It returns
// the items that do not exist as of a look that began after the call.
func (c *confirmer) confirm(ctx context.Context, items []stock.Item, sent time.Time) ([]stock.Item, error) {
	began := time.Now()
	items = c.unread(items, sent)
	for len(items) > 0 {
		r, err := c.join(items)
		if err != nil {
			return nil, err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err != nil {
			return nil, r.err
		}
		items = r.missing(items)
		if r.started.After(began) {
			return items, nil
		}
		// A reading that was on its way before us proves that an item exists, not that it does not.
	}
	return nil, nil
}

// missing are those of items that were not found.
func (r *reading) missing(items []stock.Item) []stock.Item {
	var missing []stock.Item
	for _, item := range items {
		if !r.asked[item] {
			missing = append(missing, item)
		}
	}
	return missing
}

// unread are the items about which the gate was told nothing since sent.
func (c *confirmer) unread(items []stock.Item, sent time.Time) []stock.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unread []stock.Item
	for _, item := range items {
		told, ok := c.recent[item]
		if !ok {
			told = c.before[item]
		}
		if told.Before(sent) {
			unread = append(unread, item)
		}
	}
	return unread
}

// join the reading on its way when it is about all the items, else the last one that waits.
func (c *confirmer) join(items []stock.Item) (*reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.current != nil && c.current.about(items) {
		return c.current, nil
	}
	if n := len(c.waiting); n == 0 || len(c.waiting[n-1].asked)+len(items) > maxReading {
		c.waiting = append(c.waiting, &reading{asked: make(map[stock.Item]bool), done: make(chan struct{})})
	}
	r := c.waiting[len(c.waiting)-1]
	for _, item := range items {
		r.asked[item] = false
	}
	if c.current == nil {
		c.nextLocked()
		c.work.Go(c.run)
	}
	return r, nil
}

func (r *reading) about(items []stock.Item) bool {
	for _, item := range items {
		if _, ok := r.asked[item]; !ok {
			return false
		}
	}
	return true
}

// run reads until nothing waits.
func (c *confirmer) run() {
	for r := c.current; r != nil; r = c.next() {
		c.read(r)
		close(r.done)
	}
}

func (c *confirmer) next() *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextLocked()
	return c.current
}

func (c *confirmer) nextLocked() {
	c.current = nil
	if len(c.waiting) > 0 {
		c.current = c.waiting[0]
		c.waiting = c.waiting[1:]
		c.current.started = time.Now()
	}
}

// read asks the ledger, and tells the lanes before anybody who waits may ask the gate again.
func (c *confirmer) read(r *reading) {
	ctx, cancel := context.WithTimeout(c.ctx, c.gate.cfg.ConfirmTimeout)
	defer cancel()
	items := slices.Collect(maps.Keys(r.asked))
	found, err := c.look(ctx, items)
	c.gate.metrics.confirm.Observe(time.Since(r.started).Seconds())
	if err != nil {
		r.err = fmt.Errorf("confirm %d items: %w", len(items), err)
		return
	}
	defect.Reach(defect.FiguresRead)
	for i := range found {
		c.gate.laneOf(found[i].Item).settle(found[i], r.started)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.turned) > Freshness || len(c.recent) >= maxRecent {
		c.before, c.recent, c.turned = c.recent, make(map[stock.Item]time.Time), now
	}
	for i := range found {
		r.asked[found[i].Item] = true
		c.recent[found[i].Item] = now
	}
}

// look into the ledger: for the figures of items, and for what customers have.
func (c *confirmer) look(ctx context.Context, items []stock.Item) ([]stock.Levels, error) {
	var units []stock.CustomerUnits
	var real []stock.Item
	for _, item := range items {
		if of, customer, ok := allowed(item); ok {
			units = append(units, stock.CustomerUnits{Customer: customer, Item: of})
		} else {
			real = append(real, item)
		}
	}
	var found []stock.Levels
	var err error
	if len(real) > 0 {
		if found, err = c.gate.cfg.Confirm(ctx, real); err != nil {
			return nil, err
		}
	}
	if len(units) > 0 {
		if units, err = c.gate.cfg.Count(ctx, units); err != nil {
			return nil, err
		}
		for i := range units {
			found = append(found, owed(&units[i]))
		}
	}
	return found, nil
}

// close lets the call on its way fail and nobody join any more.
func (c *confirmer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
}
