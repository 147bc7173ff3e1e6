package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Target is a service under load: one process or several on the same stores.
type Target struct {
	Addrs []string // of its processes, host:port; the connections are spread over them evenly
	Token string
}

// connection is a kept TCP connection and what happened on it. One goroutine uses it.
type connection struct {
	net.Conn
	target   int // which process of the target
	head     []byte
	out      []byte
	id       []byte
	body     []byte
	in       []byte
	filled   int
	statuses [600]int64
	replays  int64
	taken    int64
}

// Generator sends requests over connections that it keeps, each after the answer to the one before.
type Generator struct {
	conns []*connection
}

// Dial opens connections to a target, at least one to each of its processes.
func Dial(ctx context.Context, t Target, clients int) (*Generator, error) {
	g := &Generator{}
	for i := range clients {
		var dialer net.Dialer
		addr := t.Addrs[i%len(t.Addrs)]
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			g.Close()
			return nil, err
		}
		g.conns = append(g.conns, &connection{
			Conn: conn, target: i % len(t.Addrs), in: make([]byte, 16<<10),
			head: fmt.Appendf(nil, " HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: ", addr, t.Token),
		})
	}
	return g, nil
}

// Close ends all connections.
func (g *Generator) Close() {
	for _, c := range g.conns {
		_ = c.Close() // nothing is on its way
	}
}

// Pace is how fast requests are sent and for how long.
type Pace struct {
	For  time.Duration
	Rate float64 // requests a second, sent evenly whatever the answers take; 0: as fast as answers come
}

// Load is what a run of the generator saw.
type Load struct {
	Took      time.Duration
	Requests  int64
	Taken     int64         // orders that took stock
	Replays   int64         // answers that were those of an earlier request
	Statuses  map[int]int64 // answers by status
	PerTarget []int64       // orders that took stock, by process
	Latency   *Histogram    // of all answers but those that turned a request away
	Shed      *Histogram    // of these
	Wrong     int64         // answers that are not what was expected, and answers that did not come
	Reasons   []error       // of the first of these
}

// patience is how long after the end of a run its last answers may come.
const patience = 30 * time.Second

const maxReasons = 5

// run is the state that the connections of one run share.
type run struct {
	work    *Workload
	pace    Pace
	start   time.Time
	end     time.Time
	latency *Histogram
	shed    *Histogram
	due     atomic.Int64 // requests that the pace has given out

	mu      sync.Mutex
	wrong   int64   // guarded by mu
	reasons []error // guarded by mu
}

// Run sends requests for a while. Connections on which something went wrong are not used again.
func (g *Generator) Run(ctx context.Context, w *Workload, pace Pace) *Load {
	r := &run{work: w, pace: pace, latency: &Histogram{}, shed: &Histogram{}, start: time.Now()}
	r.end = r.start.Add(pace.For)
	var workers sync.WaitGroup
	for _, c := range g.conns {
		c.statuses, c.replays, c.taken = [600]int64{}, 0, 0
		if err := c.SetDeadline(r.end.Add(patience)); err != nil {
			r.note(err)
			continue
		}
		workers.Go(func() { r.drive(ctx, c) })
	}
	workers.Wait()
	load := &Load{Took: time.Since(r.start), Latency: r.latency, Shed: r.shed, Statuses: map[int]int64{}, Wrong: r.wrong, Reasons: r.reasons}
	for _, c := range g.conns {
		load.add(c)
	}
	return load
}

func (l *Load) add(c *connection) {
	for status, n := range c.statuses {
		if n > 0 {
			l.Statuses[status] += n
			l.Requests += n
		}
	}
	l.Replays += c.replays
	l.Taken += c.taken
	l.PerTarget = slices.Grow(l.PerTarget, c.target+1)[:max(len(l.PerTarget), c.target+1)]
	l.PerTarget[c.target] += c.taken
}

// note counts something that must not happen.
func (r *run) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong++
	if len(r.reasons) < maxReasons {
		r.reasons = append(r.reasons, err)
	}
}

// drive sends one request after the other over a connection.
func (r *run) drive(ctx context.Context, c *connection) {
	for now := time.Now(); ctx.Err() == nil; {
		sent, ok := r.wait(ctx, now)
		if !ok {
			return
		}
		n := r.number()
		answer, err := c.order(r.work, n)
		now = time.Now()
		if answer.shed() {
			r.shed.Record(now.Sub(sent))
		} else {
			r.latency.Record(now.Sub(sent))
		}
		if err != nil {
			r.note(fmt.Errorf("%s: %w", c.id, err))
			if errors.Is(err, errLost) {
				return
			}
			continue
		}
		if r.work.Hold && answer.status == 201 && !answer.replayed {
			err = c.commit(answer)
			r.latency.Record(time.Since(now))
			now = time.Now()
			if err != nil {
				r.note(err)
				return
			}
		}
		c.count(r.work, n, &answer)
	}
}

// count what an answer without a defect says of request n.
func (c *connection) count(w *Workload, n int64, answer *response) {
	switch {
	case answer.replayed:
		c.replays += int64(max(w.Batch, 1))
	case answer.status == 201:
		c.taken++
		w.taken(n)
	case answer.status == 200: // a batch
		for i := range w.Batch {
			c.taken++
			w.taken(w.inBatch(n, i))
		}
	}
}

// wait until the next request is due and return when it is to be counted as sent; false when none is left to send. In an open loop
// that is when it was due, if the answers before it were late; it is now if only our timer was. What was due before the end is sent, however
// late: leaving it out would hide that the service was slow.
func (r *run) wait(ctx context.Context, now time.Time) (time.Time, bool) {
	if r.pace.Rate == 0 {
		return now, now.Before(r.end)
	}
	due := r.start.Add(time.Duration(float64(r.due.Add(1)-1) / r.pace.Rate * float64(time.Second)))
	if !due.Before(r.end) {
		return due, false
	}
	if now.After(due) {
		return due, true
	}
	timer := time.NewTimer(due.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return time.Now(), true
	case <-ctx.Done():
		return due, false
	}
}

// number of the next request: a new one, or one of those sent last.
func (r *run) number() int64 {
	w := r.work
	const back = 64
	if w.Duplicates > 0 && rand.Float64() < w.Duplicates {
		if last := w.issued.Load(); last > 0 {
			return last - rand.Int64N(min(back, last))
		}
	}
	return w.issued.Add(1)
}

// errLost: there was no answer, or one that cannot be read; the connection is of no use any more.
var errLost = errors.New("no answer")

// order sends request n and reads its answer.
func (c *connection) order(w *Workload, n int64) (response, error) {
	path, check := "POST /v1/deductions", w.check
	if w.Batch > 0 {
		path, check = "POST /v1/deductions/batch", w.checkBatch
		c.body, c.id = w.appendBatch(c.body[:0], c.id, n)
	} else {
		c.id = w.appendID(c.id[:0], n)
		c.body = w.appendBody(c.body[:0], c.id, n)
	}
	b := append(append(c.out[:0], path...), c.head...)
	b = append(append(b, c.id...), "\r\nContent-Length: "...)
	b = append(strconv.AppendInt(b, int64(len(c.body)), 10), "\r\n\r\n"...)
	c.out = append(b, c.body...)
	r, err := c.exchange()
	if err == nil {
		err = check(&r, c.id)
	}
	return r, err
}

// commit what the answer says is held.
func (c *connection) commit(held response) error {
	const prefix, idLength = len(`{"id":"`), 36
	if len(held.body) < prefix+idLength {
		return fmt.Errorf("%w: %q has no id", errLost, held.body)
	}
	id := held.body[prefix:][:idLength]
	b := append(append(append(c.out[:0], "POST /v1/deductions/"...), id...), "/commit"...)
	b = append(append(b, c.head...), c.id...)
	c.out = append(b, "\r\nContent-Length: 0\r\n\r\n"...)
	r, err := c.exchange()
	if err == nil && r.status != 200 {
		err = fmt.Errorf("commit of %s was answered %d: %.300s", c.id, r.status, r.body)
	}
	return err
}

// maxResponse bounds what is read of one answer, in bytes: an order of 1,000 lines is told in half of it.
const maxResponse = 1 << 20

// exchange sends c.out and reads one response.
func (c *connection) exchange() (response, error) {
	if _, err := c.Write(c.out); err != nil {
		return response{}, fmt.Errorf("%w: %w", errLost, err)
	}
	c.filled = 0
	for {
		n, err := c.Read(c.in[c.filled:])
		c.filled += n
		if err != nil {
			return response{}, fmt.Errorf("%w: %w", errLost, err)
		}
		r, err := parseResponse(c.in[:c.filled])
		switch {
		case err == nil:
			c.statuses[min(r.status, len(c.statuses)-1)]++
			return r, nil
		case !errors.Is(err, errMore):
			return r, fmt.Errorf("%w: %w", errLost, err)
		case c.filled >= maxResponse:
			return r, fmt.Errorf("%w: a response of more than %d bytes", errLost, maxResponse)
		case c.filled == len(c.in):
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
	}
}
