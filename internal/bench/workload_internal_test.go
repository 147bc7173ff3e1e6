package bench

import (
	"encoding/json"
	"testing"
)

func TestRequestsAreOnesOfTheirOwnAndTheSameEachTime(t *testing.T) {
	t.Parallel()
	for _, randomKeys := range []bool{false, true} {
		w := NewWorkload(Shape{Items: 50, Lines: 3, RandomKeys: randomKeys})
		seen := map[string]int64{}
		numbers := []int64{1, 2, 3, 9_999_999_999, 10_000_000_000, 123_456_789_012}
		for n := range int64(2_000) {
			numbers = append(numbers, 10+n)
		}
		for _, n := range numbers {
			id := string(w.appendID(nil, n))
			if other, ok := seen[id]; ok {
				t.Fatalf("requests %d and %d have the id %s", other, n, id)
			}
			seen[id] = n
			body := w.appendBody(nil, []byte(id), n)
			if again := w.appendBody(nil, w.appendID(nil, n), n); string(again) != string(body) {
				t.Fatalf("request %d is %s, then %s", n, body, again)
			}
			var order struct {
				OrderID string `json:"order_id"`
				Lines   []struct {
					SKU      string `json:"sku"`
					Quantity int    `json:"quantity"`
				} `json:"lines"`
			}
			if err := json.Unmarshal(body, &order); err != nil || order.OrderID != id || len(order.Lines) != 3 {
				t.Fatalf("request %d is %s: %v", n, body, err)
			}
			for i, line := range order.Lines {
				if line.SKU != w.SKUs[w.item(n, i)] || line.Quantity != 1 {
					t.Fatalf("line %d of request %d is %v, want one of %s", i, n, line, w.SKUs[w.item(n, i)])
				}
			}
			w.taken(n)
		}
		for i := range w.sold {
			if share := float64(w.sold[i].Load()) / float64(3*len(numbers)); share < 0.01 || share > 0.04 {
				t.Errorf("item %d of 50 is in %.3f of all lines", i, share)
			}
		}
	}
}

func TestOnlyRightAnswersAreAccepted(t *testing.T) {
	t.Parallel()
	const id = "b-1"
	created := response{status: 201, body: []byte(`{"id":"x","order_id":"b-1"}`)}
	other := response{status: 201, body: []byte(`{"id":"x","order_id":"b-2"}`)}
	short := response{status: 409, body: []byte(`{"type":"urn:holdfast:problem:insufficient-stock"}`)}
	conflict := response{status: 409, body: []byte(`{"type":"urn:holdfast:problem:order-already-deducted"}`)}
	overloaded := response{status: 503, body: []byte(`{"type":"urn:holdfast:problem:overloaded"}`)}
	ample, scarce := NewWorkload(Shape{Items: 1, Stock: Plenty}), NewWorkload(Shape{Items: 1, Stock: 5})
	for _, c := range []struct {
		work   *Workload
		answer response
		right  bool
	}{
		{ample, created, true}, {ample, other, false}, {ample, short, false}, {ample, conflict, false}, {ample, overloaded, false},
		{scarce, created, true}, {scarce, other, false}, {scarce, short, true}, {scarce, conflict, false}, {scarce, overloaded, false},
	} {
		if err := c.work.check(&c.answer, []byte(id)); (err == nil) != c.right {
			t.Errorf("with a stock of %d, %d %s: %v", c.work.Stock, c.answer.status, c.answer.body, err)
		}
	}
}
