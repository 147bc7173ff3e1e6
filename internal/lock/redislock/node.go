package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// A call in a flight waits for the flight before it, so few are enough; a batch is bounded so that none is late.
const (
	maxFlights = 2
	maxBatch   = 128
)

// node is one Redis server. Calls that are made while others are on their way gather and go as one pipeline: many
// lockers share few round trips, a single one waits for nobody.
type node struct {
	client *redis.Client

	mu      sync.Mutex
	flights int     // guarded by mu
	queue   []*call // calls no flight has room for; guarded by mu
	idle    []link  // connections of flights that landed; guarded by mu
	closed  bool    // guarded by mu
}

// link is a connection that is kept from one flight to the next, because taking it from the client's pool each time
// costs a tenth of a round trip.
type link struct {
	conn *redis.Conn
	used time.Time
}

// maxIdle is how long a link may lie unused and still be trusted to be connected.
const maxIdle = 5 * time.Second

// take returns a connection, and whether it is a fresh one of the pool.
func (n *node) take() (conn *redis.Conn, fresh bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.idle) > 0 {
		last := n.idle[len(n.idle)-1]
		n.idle = n.idle[:len(n.idle)-1]
		if time.Since(last.used) < maxIdle {
			return last.conn, false
		}
		_ = last.conn.Close() // gives it back to the pool
	}
	return n.client.Conn(), true
}

// keep puts a connection back after a flight; one that failed is of no use any more.
func (n *node) keep(conn *redis.Conn, failed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if failed || n.closed {
		_ = conn.Close() // the pool drops what is broken
		return
	}
	n.idle = append(n.idle, link{conn, time.Now()})
}

func (n *node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	var errs []error
	for _, l := range n.idle {
		errs = append(errs, l.conn.Close())
	}
	n.idle = nil
	return errors.Join(errs...)
}

// socketOnly is a ctx for a connection that is at hand: only its sockets wait, and they look at the deadline.
type socketOnly struct{ context.Context }

func (socketOnly) Done() <-chan struct{} { return nil }

// call is one script to be run.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
	ctx    context.Context // bounds this call; a call is over before its caller's ctx is
	cmd    *redis.Cmd
	err    error
	done   chan struct{}
	lead   chan []*call // receives the batch that this call has to send for all
}

// run runs a script. The error is a reply of the server, which means that nothing was done; wraps [errUnsent] if the
// server never saw the call; and is an unknown outcome otherwise.
func (n *node) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (any, error) {
	c := &call{script: script, keys: keys, args: args, ctx: ctx}
	n.mu.Lock()
	if n.flights < maxFlights {
		n.flights++
		n.mu.Unlock()
		n.send([]*call{c})
		return c.result()
	}
	c.done, c.lead = make(chan struct{}), make(chan []*call, 1)
	n.queue = append(n.queue, c)
	n.mu.Unlock()
	select {
	case <-c.done:
	case batch := <-c.lead:
		n.send(batch)
	case <-ctx.Done():
		if n.withdraw(c) {
			return nil, fmt.Errorf("%w: %w", errUnsent, ctx.Err())
		}
		select { // it is on its way, or about to be
		case <-c.done:
		case batch := <-c.lead:
			n.send(batch)
		}
	}
	return c.result()
}

// withdraw takes back a call that nobody sends yet.
func (n *node) withdraw(c *call) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, queued := range n.queue {
		if queued == c {
			n.queue = append(n.queue[:i], n.queue[i+1:]...)
			return true
		}
	}
	return false
}

// send runs a batch, answers its calls, and hands what gathered meanwhile to the first of those who wait.
func (n *node) send(batch []*call) {
	conn, fresh := n.take()
	ctx, cancel := flightContext(batch)
	if !fresh {
		ctx = socketOnly{ctx}
	}
	if len(batch) == 1 {
		sendOne(ctx, conn, batch[0])
	} else {
		sendMany(ctx, conn, batch)
	}
	cancel()
	n.keep(conn, slices.ContainsFunc(batch, func(c *call) bool { return c.err != nil && !isReply(c.err) }))
	n.next()
	for _, c := range batch {
		if c.done != nil {
			close(c.done)
		}
	}
}

// flightContext is bounded by the shortest of the calls' deadlines.
func flightContext(batch []*call) (context.Context, context.CancelFunc) {
	if len(batch) == 1 {
		return batch[0].ctx, func() {}
	}
	var earliest time.Time
	for _, c := range batch {
		if d, ok := c.ctx.Deadline(); ok && (earliest.IsZero() || d.Before(earliest)) {
			earliest = d
		}
	}
	ctx := context.WithoutCancel(batch[0].ctx)
	if earliest.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, earliest)
}

func (n *node) next() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		n.flights--
		return
	}
	size := min(len(n.queue), maxBatch)
	batch := n.queue[:size:size]
	n.queue = n.queue[size:]
	batch[0].lead <- batch
}

func sendOne(ctx context.Context, conn *redis.Conn, c *call) {
	c.cmd = c.script.Run(ctx, conn, c.keys, c.args...)
	c.err = c.cmd.Err()
}

// sendMany sends the calls in one pipeline.
func sendMany(ctx context.Context, conn *redis.Conn, batch []*call) {
	pipe := conn.Pipeline()
	for _, c := range batch {
		c.cmd = c.script.EvalSha(ctx, pipe, c.keys, c.args...)
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	for _, c := range batch {
		if c.err = c.cmd.Err(); redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			c.cmd = c.script.Eval(ctx, conn, c.keys, c.args...)
			c.err = c.cmd.Err()
		}
	}
}

func (c *call) result() (any, error) {
	if c.err == nil {
		return c.cmd.Val(), nil
	}
	return nil, classify(c.err)
}

// number reads the answer of a script that answers with one.
func number(answer any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	n, ok := answer.(int64)
	if !ok {
		return 0, fmt.Errorf("a script answered %v", answer)
	}
	return n, nil
}

// errUnsent: the server never saw the request.
var errUnsent = errors.New("the request was not sent")

// classify tells what an error of the client means for the request.
func classify(err error) error {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, errUnsent):
		return err
	case errors.As(err, &reply):
		return err // the scripts check before they write
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w: %w", errUnsent, err)
	default:
		return fmt.Errorf("%w: %w", lock.ErrUnknownOutcome, err)
	}
}

// moved reports whether a cluster node says that the key is not its own.
func moved(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), "MOVED ") || strings.HasPrefix(reply.Error(), "ASK "))
}

// checkOptions refuses clients that would send a request twice behind our back, or wait longer than they are told.
func checkOptions(retries int, deadlines bool) error {
	if retries > 0 {
		return fmt.Errorf("%w: the client retries by itself; set MaxRetries to -1", lock.ErrInvalid)
	}
	if !deadlines {
		return fmt.Errorf("%w: the client does not pass deadlines on to its sockets; set ContextTimeoutEnabled", lock.ErrInvalid)
	}
	return nil
}
