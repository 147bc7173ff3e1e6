package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// replay is one sending of a log to a service.
type replay struct {
	api     *caller
	log     *orderLog
	workers int
	rate    rate.Limit
	show    *progress

	results []result                 // of the log's orders, each owned by its sender until done is closed
	known   map[string]*atomic.Int64 // by code, the highest version that any answer has shown
}

// result is what became of an order.
type result struct {
	done chan struct{} // closed when all below is final

	verdict   verdict
	replayed  bool
	deduction string      // its id, when accepted
	short     []shortLine // when refused
	problem   string      // when failed: its kind, or the status
	levels    []levels    // every figure that was answered
	known     []int64     // by line, the version of its code that was known when it was sent
	sent      time.Time
	answered  time.Time
	returns   []returned // of a cancellation, one for each entry of its order's back
}

// returned is what became of goods that came back.
type returned struct {
	verdict  verdict
	received bool // booked as received, not as a return of its sale
	replayed bool
	version  int64 // of the movement, when received
	problem  string
	levels   []levels
}

type verdict int

const (
	unsent   verdict = iota
	accepted         // done, now or before
	refused          // not enough stock
	failed           // any other final answer
	unknown          // there was no final answer
)

func newReplay(api *caller, log *orderLog, workers int) *replay {
	r := &replay{api: api, log: log, workers: workers, rate: rate.Inf, known: make(map[string]*atomic.Int64)}
	r.results = make([]result, len(log.orders))
	for i := range r.results {
		r.results[i].done = make(chan struct{})
	}
	for _, code := range log.codes {
		r.known[code] = new(atomic.Int64)
	}
	return r
}

// keyReused is the problem of a key that stands for another request.
const keyReused = "idempotency-key-reused"

// codesAtOnce is how many codes are set up or read at once: only orders follow one another as they did in the log.
const codesAtOnce = 64

// each calls do for every code, in no order.
func (r *replay) each(ctx context.Context, what string, do func(ctx context.Context, code string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(codesAtOnce)
	r.show.begin(what, len(r.log.codes))
	defer r.show.end()
	for _, code := range r.log.codes {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			defer r.show.step()
			return do(ctx, code)
		})
	}
	return group.Wait()
}

// setUp creates every code of the log and receives units of each. It does nothing the second time, and fails when the first
// time was for other units.
func (r *replay) setUp(ctx context.Context, units func(code string) int64) error {
	return r.each(ctx, "items", func(ctx context.Context, code string) error {
		create := request{
			method: http.MethodPut, path: stockPath(code, "", ""),
			header: map[string]string{"If-None-Match": "*"}, body: map[string]any{},
		}
		a, err := r.api.persist(ctx, create)
		if err != nil {
			return err
		}
		if err := a.must(); err != nil && a.status != http.StatusPreconditionFailed {
			return fmt.Errorf("create %q: %w", code, err)
		}
		n := units(code)
		if n == 0 {
			return nil
		}
		a, err = r.api.persist(ctx, adjustment(code, keyOf("replay-stock", code), map[string]any{
			"kind": "receive", "delta": n, "reason": "stock for a replay",
		}))
		if err != nil {
			return err
		}
		if err := a.must(); err != nil {
			if a.problem().kind() == keyReused {
				err = errors.New("an earlier replay gave it other stock; leave --stock and --stock-factor out to go on with what is there")
			}
			return fmt.Errorf("receive %d of %q: %w", n, code, err)
		}
		return nil
	})
}

func adjustment(code, key string, body map[string]any) request {
	return request{method: http.MethodPost, path: stockPath(code, "/adjustments", ""), key: key, body: body}
}

// errStopped: an order has no final answer, so no further one was started.
var errStopped = errors.New("stopped, because an order got no final answer")

// send sends every order once, in the order of the log: an order is started when a worker is free and all before it are
// started. It stops at the first order without a final answer.
func (r *replay) send(ctx context.Context) error {
	r.show.begin("orders", len(r.log.orders))
	defer r.show.end()
	next, stop := make(chan int), make(chan struct{})
	var workers sync.WaitGroup
	var once sync.Once
	for range r.workers {
		workers.Go(func() {
			for i := range next {
				if !r.sendOrder(ctx, i) {
					once.Do(func() { close(stop) })
				}
				close(r.results[i].done)
				r.show.step()
			}
		})
	}
	err := r.start(ctx, next, stop)
	close(next)
	workers.Wait()
	select {
	case <-stop:
		return errors.Join(ctx.Err(), errStopped)
	default:
		return err
	}
}

// start hands the orders to the workers.
func (r *replay) start(ctx context.Context, next chan<- int, stop <-chan struct{}) error {
	limiter := rate.NewLimiter(r.rate, 1)
	for i := range r.log.orders {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		select {
		case next <- i:
		case <-stop:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sendOrder reports whether everything about the order is known now.
func (r *replay) sendOrder(ctx context.Context, i int) (sure bool) {
	o, out := &r.log.orders[i], &r.results[i]
	if !o.cancels {
		r.deduct(ctx, o, out)
		return out.verdict != unknown
	}
	out.returns = make([]returned, len(o.back))
	for j := range o.back {
		back := &out.returns[j]
		r.giveBack(ctx, o, &o.back[j], back)
		if back.verdict == unknown {
			return false
		}
	}
	return true
}

// deduct takes everything a sale asks for, as one order.
func (r *replay) deduct(ctx context.Context, o *order, out *result) {
	type line struct {
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
	}
	lines := make([]line, len(o.lines))
	out.known = make([]int64, len(o.lines))
	for i, l := range o.lines {
		lines[i] = line{l.code, l.quantity}
		out.known[i] = r.known[l.code].Load()
	}
	out.sent = time.Now()
	a, err := r.api.persist(ctx, request{
		method: http.MethodPost, path: "/v1/deductions", key: keyOf("replay-order", o.invoice),
		body: map[string]any{"order_id": o.invoice, "lines": lines},
	})
	out.answered = time.Now()
	var deduction struct {
		ID    string   `json:"id"`
		Items []levels `json:"items"`
	}
	out.verdict, out.problem = verdictOf(a, err, &deduction)
	switch out.verdict {
	case accepted:
		out.deduction, out.levels, out.replayed = deduction.ID, deduction.Items, a.replayed()
		r.saw(out.levels)
	case refused:
		out.short = a.problem().Short
		for i := range out.short {
			r.sawVersion(out.short[i].SKU, out.short[i].Version)
		}
	}
}

// verdictOf reads a successful answer into what it is about, and says why another one is none.
func verdictOf(a *answer, err error, into any) (verdict, string) {
	if err != nil {
		return unknown, err.Error()
	}
	if a.status >= 300 {
		switch kind := a.problem().kind(); kind {
		case "insufficient-stock":
			return refused, ""
		case "":
			return failed, http.StatusText(a.status)
		default:
			return failed, kind
		}
	}
	if err := a.read(into); err != nil {
		return failed, "unreadable answer"
	}
	return accepted, ""
}

// giveBack books goods that came back: as a return of their sale if that was accepted, else as received. Both are sent
// under one key, so it is one of them for ever, even if a later replay finds the sale accepted.
func (r *replay) giveBack(ctx context.Context, o *order, b *comeback, out *returned) {
	sale := ""
	if b.sale >= 0 {
		sale = r.log.orders[b.sale].invoice
	}
	key := keyOf("replay-return", o.invoice, sale, b.code)
	if b.sale >= 0 {
		s := &r.results[b.sale]
		<-s.done // it was started before this one
		switch s.verdict {
		case unknown:
			out.verdict = unknown
			return
		case accepted:
			r.returnSold(ctx, s.deduction, b, key, out)
			if out.problem != keyReused {
				return
			}
		}
	}
	r.receive(ctx, o, b, key, out)
}

func (r *replay) returnSold(ctx context.Context, deduction string, b *comeback, key string, out *returned) {
	a, err := r.api.persist(ctx, request{
		method: http.MethodPost, path: "/v1/deductions/" + deduction + "/returns", key: key,
		body: map[string]any{"lines": []map[string]any{{"line": b.line + 1, "quantity": b.quantity}}},
	})
	var answered struct {
		Items []levels `json:"items"`
	}
	*out = returned{}
	out.verdict, out.problem = verdictOf(a, err, &answered)
	if out.verdict == accepted {
		out.levels, out.replayed = answered.Items, a.replayed()
		r.saw(out.levels)
	}
}

func (r *replay) receive(ctx context.Context, o *order, b *comeback, key string, out *returned) {
	a, err := r.api.persist(ctx, adjustment(b.code, key, map[string]any{
		"kind": "receive", "delta": b.quantity, "reason": "came back, of no earlier sale", "reference": o.invoice,
	}))
	var answered struct {
		Movement movement `json:"movement"`
		Item     levels   `json:"item"`
	}
	*out = returned{received: true}
	out.verdict, out.problem = verdictOf(a, err, &answered)
	if out.verdict == accepted {
		out.version, out.levels, out.replayed = answered.Movement.Version, []levels{answered.Item}, a.replayed()
		r.saw(out.levels)
	}
}

func (r *replay) saw(all []levels) {
	for i := range all {
		r.sawVersion(all[i].SKU, all[i].Version)
	}
}

// sawVersion notes that an item has reached a version.
func (r *replay) sawVersion(code string, version int64) {
	at := r.known[code]
	if at == nil {
		return // not of this log: the checks say so
	}
	for seen := at.Load(); seen < version && !at.CompareAndSwap(seen, version); seen = at.Load() {
	}
}

// snapshot reads the figures of all codes of the log, at the default location.
func (r *replay) snapshot(ctx context.Context) (map[string]levels, error) {
	found := make(map[string]levels, len(r.log.codes))
	err := r.api.items(ctx, "default", func(i *item) error {
		if r.known[i.SKU] != nil {
			found[i.SKU] = i.levels
		}
		return nil
	})
	return found, err
}

// movement is one change of an item, as the API shows it.
type movement struct {
	Version     int64  `json:"version"`
	Kind        string `json:"kind"`
	DeltaOnHand int64  `json:"delta_on_hand"`
	DeltaHeld   int64  `json:"delta_held"`
	OnHand      int64  `json:"on_hand"`
	Held        int64  `json:"held"`
	Deduction   string `json:"deduction_id"`
}

// histories reads every movement of every code that exists.
func (r *replay) histories(ctx context.Context, of map[string]levels) (map[string][]movement, error) {
	var mu sync.Mutex
	all := make(map[string][]movement, len(of))
	err := r.each(ctx, "histories", func(ctx context.Context, code string) error {
		if _, ok := of[code]; !ok {
			return nil
		}
		history, err := r.history(ctx, code)
		mu.Lock()
		defer mu.Unlock()
		all[code] = history
		return err
	})
	return all, err
}

func (r *replay) history(ctx context.Context, code string) ([]movement, error) {
	var history []movement
	for after := int64(0); ; {
		path := fmt.Sprintf("%s?limit=%d&after_version=%d", stockPath(code, "/movements", ""), maxPage, after)
		a, err := r.api.persist(ctx, request{method: http.MethodGet, path: path})
		if err != nil {
			return nil, err
		}
		var page struct {
			Movements []movement `json:"movements"`
			Next      int64      `json:"next_after_version"`
		}
		if err := a.read(&page); err != nil {
			return nil, fmt.Errorf("read the movements of %q: %w", code, err)
		}
		history = append(history, page.Movements...)
		if page.Next == 0 {
			return history, nil
		}
		if page.Next <= after {
			return nil, fmt.Errorf("read the movements of %q: the page after %d leads to %d", code, after, page.Next)
		}
		after = page.Next
	}
}
