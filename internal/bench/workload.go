package bench

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Shape says what the requests of a workload ask for.
type Shape struct {
	Items      int     // how many SKUs; each line is of one of them, picked by hash
	Lines      int     // of an order
	Stock      int64   // units of each item before
	Duplicates float64 // share of requests that repeat another one, which may still be on its way
	RandomKeys bool    // keys without an order, like UUIDs of version 4, instead of counted ones
	Hold       bool    // hold and then commit, in two requests, instead of taking at once
	Sheds      bool    // the service may turn requests away: 503, with Retry-After and the word that nothing was done
	Batch      int     // orders that one request asks for together; 0: one, alone. Needs Plenty of stock, and does not hold
}

// Workload is an endless row of requests of one unit a line, and what their answers were. A request is a function of its
// number, so that a duplicate is the same to the byte, its key included.
type Workload struct {
	Shape
	Name string // begins every key, order id and SKU
	SKUs []string

	issued atomic.Int64   // numbers of requests given out
	sold   []atomic.Int64 // units of each item, by the answers
	orders atomic.Int64   // taken, by the answers
}

// NewWorkload gives a workload a name that no other has on its ledger.
func NewWorkload(shape Shape) *Workload {
	w := &Workload{Shape: shape, Name: "bench" + strconv.FormatInt(time.Now().UnixMicro(), 36)}
	w.SKUs = make([]string, shape.Items)
	for i := range w.SKUs {
		w.SKUs[i] = fmt.Sprintf("%s-%05d", w.Name, i)
	}
	w.sold = make([]atomic.Int64, shape.Items)
	return w
}

// splitmix is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// item of a line of request n.
func (w *Workload) item(n int64, line int) int {
	if len(w.SKUs) == 1 {
		return 0
	}
	return int(splitmix(uint64(n)<<10|uint64(line)) % uint64(len(w.SKUs)))
}

// appendID writes the key of request n, which is its order id too.
func (w *Workload) appendID(b []byte, n int64) []byte {
	b = append(append(b, w.Name...), '-')
	if w.RandomKeys {
		var random [16]byte
		for i := range 2 {
			bits := splitmix(uint64(n)<<1 | uint64(i))
			for j := range 8 {
				random[8*i+j] = byte(bits >> (8 * j))
			}
		}
		return hex.AppendEncode(b, random[:])
	}
	const width = 10
	start := len(b)
	b = strconv.AppendInt(append(b, "0000000000"...), n, 10)
	digits := len(b) - start - width
	return append(b[:start+max(width-digits, 0)], b[start+width:]...)
}

// appendBody writes the body of request n with its id.
func (w *Workload) appendBody(b, id []byte, n int64) []byte {
	b = append(append(append(b, `{"order_id":"`...), id...), '"')
	if w.Hold {
		b = append(b, `,"hold_seconds":600`...)
	}
	b = append(b, `,"lines":[`...)
	for line := range w.Lines {
		if line > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"sku":"`...), w.SKUs[w.item(n, line)]...)
		b = append(b, `","quantity":1}`...)
	}
	return append(b, "]}"...)
}

// appendBatch writes the body of request n, which asks for the orders that are its own.
func (w *Workload) appendBatch(b, id []byte, n int64) (body, last []byte) {
	b = append(b, `{"deductions":[`...)
	for i := range w.Batch {
		if i > 0 {
			b = append(b, ',')
		}
		order := w.inBatch(n, i)
		id = w.appendID(id[:0], order)
		b = append(append(append(b, `{"idempotency_key":"`...), id...), `","deduction":`...)
		b = append(w.appendBody(b, id, order), '}')
	}
	return append(b, "]}"...), id
}

// inBatch is the number of an order of request n.
func (w *Workload) inBatch(n int64, i int) int64 { return (n-1)*int64(w.Batch) + int64(i) + 1 }

// checkBatch says what is wrong with the answer to a batch, if anything: nothing of it is refused, and it is replayed as a whole.
func (w *Workload) checkBatch(r *response, id []byte) error {
	done, replays := bytes.Count(r.body, []byte(`"status":201`)), bytes.Count(r.body, []byte(`"replayed":true`))
	if r.status != 200 || done != w.Batch || replays != 0 && replays != w.Batch {
		return fmt.Errorf("the batch with %s was answered %d, %d taken and %d replayed of %d: %.700s", id, r.status, done, replays, w.Batch, r.body)
	}
	r.replayed = replays > 0
	return nil
}

// taken notes that order n has had its effect.
func (w *Workload) taken(n int64) {
	w.orders.Add(1)
	for line := range w.Lines {
		w.sold[w.item(n, line)].Add(1)
	}
}

// check says what is wrong with the answer to request n, if anything. A refusal is right only if stock is so small
// that it may have run out.
func (w *Workload) check(r *response, id []byte) error {
	switch {
	case r.status == 201 && bytes.Contains(r.body, id):
		return nil
	case r.status == 409 && w.Stock < Plenty && bytes.Contains(r.body, []byte("insufficient-stock")):
		return nil
	case w.Sheds && r.shed() && r.later && bytes.Contains(r.body, []byte(`"outcome":"none"`)):
		return nil
	}
	return fmt.Errorf("%s was answered %d: %.700s", id, r.status, r.body)
}

// Plenty is a stock that no run uses up, in units.
const Plenty = 1_000_000_000_000
