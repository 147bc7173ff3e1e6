package robust_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-stock/holdfast/internal/robust"
)

// The catalogue: one item that everybody wants, and others.
const (
	hot       = "HOT"
	cold      = 16
	customers = 24
)

// hashOf is what the token file has of a client's token, which is its name.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// load is many customers at work, and what they saw.
type load struct {
	world   *world
	cut     float64         // the share of requests that their client cuts
	tries   time.Duration   // for how long an operation is tried
	pause   time.Duration   // of a customer between two operations, at most
	late    bool            // commits wait until their hold is all but over
	settled [2]atomic.Int64 // of each process: when the last write that it did or refused was called, in ns
	answers atomic.Int64    // clear ones, that nothing was done included
	served  atomic.Int64    // those of them that did something or refused it for a reason of its own
	group   sync.WaitGroup
	stop    chan struct{} // closed by halt
	halted  sync.Once
	mu      sync.Mutex
	ops     []robust.Op // guarded by mu
}

// begin stocks the world up and lets customers loose.
func (w *world) begin() *load {
	l := w.prepare()
	l.release()
	return l
}

func (w *world) prepare() *load {
	l := &load{world: w, cut: 0.015, tries: 30 * time.Second, pause: 15 * time.Millisecond, stop: make(chan struct{})}
	c := l.customer(0)
	for i := range cold + 1 {
		sku := skuOf(i)
		if status, _, body := c.once(0, "PUT", "/v1/stock/"+sku, "", map[string]any{}, patience); status != http.StatusCreated {
			w.t.Fatalf("create %s: %d %s", sku, status, body)
		}
		c.receive(sku, 40)
	}
	return l
}

func (l *load) release() {
	l.world.t.Cleanup(l.halt) // where the test ends before its time
	for i := range customers {
		l.group.Go(func() { l.customer(i + 1).run() })
	}
}

// end stops all customers and returns what they saw.
func (l *load) end() *robust.History {
	l.halt()
	return &robust.History{Ops: l.ops}
}

// halt stops all customers and waits for them.
func (l *load) halt() {
	l.halted.Do(func() { close(l.stop) })
	l.group.Wait()
}

func skuOf(i int) string {
	if i == 0 {
		return hot
	}
	return "COLD-" + strconv.Itoa(i)
}

// awaitAnswers lets the load go on for a while, and until it got so many clear answers.
func (l *load) awaitAnswers(n int64, atLeast time.Duration) {
	l.world.t.Helper()
	from, began := l.answers.Load(), time.Now()
	for deadline := began.Add(patience); time.Since(began) < atLeast || l.answers.Load()-from < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.world.t.Fatalf("only %d answers in %v", l.answers.Load()-from, patience)
		}
	}
}

// customer does one thing after the other.
type customer struct {
	load   *load
	random *rand.Rand
	number int
	client string
	keys   int
	only   *int        // the process it calls; nil: any
	holds  []robust.Op // open as far as it knows
	bought []robust.Op
}

func (l *load) customer(number int) *customer {
	return &customer{
		load: l, number: number, client: clients[number%len(clients)], random: rand.New(rand.NewPCG(l.world.seed, uint64(number)+1)),
	}
}

// run until the load ends. Customers pause a little, so that many histories of one length have many shapes.
func (c *customer) run() {
	for {
		select {
		case <-c.load.stop:
			return
		case <-time.After(time.Duration(c.random.Int64N(int64(c.load.pause)))):
			c.act()
		}
	}
}

func (c *customer) act() {
	switch n := c.random.IntN(100); {
	case n < 38:
		c.deduct(robust.Deduct)
	case n < 60:
		c.deduct(robust.Hold)
	case n < 78:
		c.followUp()
	case n < 82 && len(c.bought) > 0:
		c.giveBack()
	case n < 89:
		c.receive(c.sku(), int64(1+c.random.IntN(12)))
	case n < 91:
		c.count()
	default:
		c.look(c.sku())
	}
}

func (c *customer) sku() string {
	if c.random.IntN(100) < 55 {
		return hot
	}
	return skuOf(1 + c.random.IntN(cold))
}

// key is used by both clients, each for something of its own.
func (c *customer) key() string {
	c.keys++
	return fmt.Sprintf("k-%d-%d", c.number/len(clients), c.keys)
}

func (c *customer) deduct(kind robust.Kind) {
	op := robust.Op{Kind: kind, Key: c.key()}
	for n := 1 + c.random.IntN(8)/6; n > 0; n-- { // mostly one line
		if sku := c.sku(); !slices.ContainsFunc(op.Lines, func(l robust.Line) bool { return l.SKU == sku }) {
			op.Lines = append(op.Lines, robust.Line{SKU: sku, Quantity: int64(1 + c.random.IntN(3))})
		}
	}
	body := map[string]any{"order_id": "o-" + op.Key, "lines": wire(op.Lines)}
	if kind == robust.Hold {
		body["hold_seconds"] = []int{1, 2, 30}[c.random.IntN(3)]
		if c.load.late {
			body["hold_seconds"] = 1
		}
	}
	c.do(&op, "POST", "/v1/deductions", body)
	switch {
	case op.Outcome != robust.Done:
	case kind == robust.Hold:
		c.holds = append(c.holds, op)
	default:
		c.bought = append(c.bought, op)
	}
}

func wire(lines []robust.Line) []map[string]any {
	var list []map[string]any
	for _, l := range lines {
		list = append(list, map[string]any{"sku": l.SKU, "quantity": l.Quantity})
	}
	return list
}

// followUp commits, releases or extends a hold, or forgets it.
func (c *customer) followUp() {
	if len(c.holds) == 0 {
		return
	}
	i := c.random.IntN(len(c.holds))
	hold := c.holds[i]
	op := robust.Op{Deduction: hold.Deduction, Lines: hold.Lines}
	path := "/v1/deductions/" + hold.Deduction
	if c.load.late {
		<-time.After(time.Until(hold.Expires.Add(20 * time.Millisecond))) // it is what the test is about
	}
	switch n := c.random.IntN(10); {
	case c.load.late || n < 5:
		op.Kind = robust.Commit
		c.do(&op, "POST", path+"/commit", nil)
	case n < 7:
		op.Kind = robust.Release
		c.do(&op, "POST", path+"/release", nil)
	case n < 9:
		op.Kind = robust.Extend
		c.do(&op, "POST", path+"/extend", map[string]any{"hold_seconds": 2})
		if op.Outcome == robust.Done {
			return // it may be followed up again
		}
	}
	c.holds = slices.Delete(c.holds, i, i+1)
}

func (c *customer) giveBack() {
	i := c.random.IntN(len(c.bought))
	op := robust.Op{Kind: robust.Return, Key: c.key(), Deduction: c.bought[i].Deduction, Lines: c.bought[i].Lines}
	c.bought = slices.Delete(c.bought, i, i+1)
	c.do(&op, "POST", "/v1/deductions/"+op.Deduction+"/returns", nil)
}

func (c *customer) receive(sku string, n int64) {
	op := robust.Op{Kind: robust.Receive, Key: c.key(), Lines: []robust.Line{{SKU: sku, Quantity: n}}}
	c.do(&op, "POST", "/v1/stock/"+sku+"/adjustments?location=default", map[string]any{"kind": "receive", "delta": n})
}

// count sets an item to what was read, and one more.
func (c *customer) count() {
	sku := c.sku()
	seen := c.look(sku)
	if seen == nil {
		return
	}
	op := robust.Op{Kind: robust.Set, Key: c.key(), Lines: []robust.Line{{SKU: sku}}}
	c.do(&op, "POST", "/v1/stock/"+sku+"/adjustments?location=default",
		map[string]any{"kind": "count", "set_to": seen.OnHand + 1, "expected_on_hand": seen.OnHand})
}

func (c *customer) look(sku string) *robust.Level {
	op := robust.Op{Kind: robust.Read}
	c.do(&op, "GET", "/v1/stock/"+sku+"?location=default", nil)
	if op.Outcome != robust.Done {
		return nil
	}
	return &op.Levels[0]
}

// answer has what is of interest in any answer.
type answer struct {
	ID      string         `json:"id"`
	Items   []robust.Level `json:"items"`
	Item    *robust.Level  `json:"item"`
	Expires time.Time      `json:"expires_at"`
	robust.Level
	Type    string         `json:"type"`
	Outcome string         `json:"outcome"`
	Short   []robust.Short `json:"short"`
}

// do sends an operation until it is answered clearly, or there is no point any more, and records it.
func (c *customer) do(op *robust.Op, method, path string, body any) {
	l := c.load
	op.Client, op.Call, op.Outcome = c.client, l.world.now(), robust.Unknown
	process := c.random.IntN(2)
	for deadline := time.Now().Add(l.tries); time.Now().Before(deadline) && op.Outcome == robust.Unknown; process = 1 - process {
		if c.only != nil {
			process = *c.only
		}
		limit := 7 * time.Second
		if c.random.Float64() < l.cut {
			limit = time.Duration(c.random.IntN(6000)) * time.Microsecond
		}
		called := l.world.now()
		status, replayed, text := c.once(process, method, path, op.Key, body, limit)
		op.Return, op.Process = l.world.now(), process
		if c.understand(op, status, replayed, text) {
			l.answered(op, process, called)
			continue
		}
		<-time.After(time.Duration(5+c.random.IntN(40)) * time.Millisecond) // at once it would find the same
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, *op)
}

// answered notes that a process has answered an operation, and when it was called.
func (l *load) answered(op *robust.Op, process int, called time.Duration) {
	l.answers.Add(1)
	if op.Shed() {
		return
	}
	l.served.Add(1)
	if op.Kind != robust.Read {
		l.settled[process].Store(int64(called))
	}
}

// understand an answer; false: send it again.
func (c *customer) understand(op *robust.Op, status int, replayed bool, text []byte) bool {
	var a answer
	if status == 0 || json.Unmarshal(text, &a) != nil {
		op.Doubtful = op.Doubtful || op.Kind != robust.Read
		return false
	}
	op.Problem, op.Replayed = a.Type, replayed
	switch {
	case status < 300:
		op.Outcome = robust.Done
		c.take(op, &a)
	case status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests || a.Outcome == "unknown":
		if a.Outcome == "unknown" {
			op.Doubtful = true
			return false
		}
		if c.random.IntN(3) > 0 {
			return false
		}
		op.Outcome = robust.Refused // "nothing was done": it had better be true
	default:
		op.Outcome, op.Short = robust.Refused, a.Short
	}
	return true
}

func (c *customer) take(op *robust.Op, a *answer) {
	switch op.Kind {
	case robust.Read:
		op.Levels = []robust.Level{a.Level}
	case robust.Receive, robust.Set:
		op.Levels = []robust.Level{*a.Item}
	default:
		op.Deduction, op.Levels, op.Expires = a.ID, a.Items, a.Expires
	}
}

// once sends a request. It returns the answer's status, 0 if there was none, and whether the answer was a replay.
func (c *customer) once(process int, method, path, key string, body any, limit time.Duration) (status int, replayed bool, text []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var reader io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err) // the bodies are made here
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.load.world.services[process].addr+path, reader)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.client)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0, false, nil
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return 0, false, nil
	}
	return resp.StatusCode, resp.Header.Get("Idempotent-Replayed") != "", text
}
