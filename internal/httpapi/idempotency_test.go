package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

func TestSameKeySameInputIsAReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	body := `{"order_id":"1","lines":[{"sku":"kettle","quantity":4}]}`
	first := w.call(t, shop, "POST", "/v1/deductions", body, key("k")...).want(t, 201)
	made := decode[openapi.Deduction](t, first)

	// The same input in other words, and the same key in quotes.
	again := w.call(t, shop, "POST", "/v1/deductions", ` {"lines":[{"location":"default","quantity":4,"sku":"\u006bettle"}],"part":"","order_id":"1"}`, key(`"k"`)...).want(t, 201)
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("replay has headers %v", again.header)
	}
	if d := decode[openapi.Deduction](t, again); d.Id != made.Id || (*d.Items)[0].OnHand != 6 {
		t.Errorf("replayed %s", again.body)
	}

	// A replay shows what the deduction is now.
	w.call(t, shop, "POST", first.header.Get("Location")+"/returns", "", key("back")...).want(t, 201)
	late := w.call(t, shop, "POST", "/v1/deductions", body, key("k")...).want(t, 201)
	if d := decode[openapi.Deduction](t, late); d.State != openapi.Returned || (*d.Items)[0].OnHand != 10 {
		t.Errorf("late replay %s", late.body)
	}

	p := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[{"sku":"kettle","quantity":5}]}`, key("k")...).problem(t, 422, "idempotency-key-reused")
	if p.Retry != openapi.NewKey {
		t.Errorf("retry %s", p.Retry)
	}
}

func TestKeysBelongToTheClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	body := `{"order_id":"1","lines":[{"sku":"kettle","quantity":1}]}`
	mine := w.call(t, shop, "POST", "/v1/deductions", body, key("k")...).want(t, 201)
	theirs := w.call(t, other, "POST", "/v1/deductions", body, key("k")...).want(t, 201)
	if theirs.header.Get("Location") == mine.header.Get("Location") || theirs.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("one client's key is another's: %s", theirs.body)
	}
}

func TestARefusalLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1)
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[{"sku":"kettle","quantity":2}]}`, key("k")...).problem(t, 409, "insufficient-stock")
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[{"sku":"cup","quantity":1}]}`, key("k")...).problem(t, 422, "unknown-item")
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[{"sku":"kettle","quantity":1}]}`, key("k")...).want(t, 201)
}

func TestAnOrderHasOneLiveDeduction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	body := `{"order_id":"1","hold_seconds":60,"lines":[{"sku":"kettle","quantity":1}]}`
	first := decode[openapi.Deduction](t, w.call(t, shop, "POST", "/v1/deductions", body, key("k1")...).want(t, 201))
	p := w.call(t, shop, "POST", "/v1/deductions", body, key("k2")...).problem(t, 409, "order-already-deducted")
	if p.DeductionId == nil || *p.DeductionId != first.Id || p.Retry != openapi.Never {
		t.Errorf("got %+v", p)
	}
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","part":"b","lines":[{"sku":"kettle","quantity":1}]}`, key("k3")...).want(t, 201)
	w.call(t, shop, "POST", "/v1/deductions/"+first.Id.String()+"/release", "").want(t, 200)
	w.call(t, shop, "POST", "/v1/deductions", body, key("k2")...).want(t, 201)
}

// Whoever comes while the first is under way waits for it and gets its answer.
func TestRacingRetriesHaveOneEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1000)
	const orders, retries = 20, 10
	answers := make([]answer, orders*retries)
	var unknown atomic.Int64
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			n := i % orders
			body := fmt.Sprintf(`{"order_id":"%d","lines":[{"sku":"kettle","quantity":1}]}`, n)
			answers[i] = w.call(t, shop, "POST", "/v1/deductions", body, key(fmt.Sprint(n))...)
			// Where the machine is so busy that the time of a request runs out, its outcome is unknown: the same key again.
			for range 5 {
				if answers[i].status != http.StatusServiceUnavailable {
					break
				}
				unknown.Add(1)
				answers[i] = w.call(t, shop, "POST", "/v1/deductions", body, key(fmt.Sprint(n))...)
			}
		})
	}
	all.Wait()
	first := 0
	locations := map[string]bool{}
	for _, a := range answers {
		a.want(t, 201)
		if locations[a.header.Get("Location")] = true; a.header.Get("Idempotent-Replayed") == "" {
			first++
		}
	}
	if first > orders || first < orders-int(unknown.Load()) || len(locations) != orders {
		t.Errorf("%d first answers and %d deductions of %d orders", first, len(locations), orders)
	}
	item := decode[openapi.Item](t, w.call(t, reader, "GET", "/v1/stock/kettle?location=default", "").want(t, 200))
	if item.OnHand != 1000-orders {
		t.Errorf("%d on hand, want %d", item.OnHand, 1000-orders)
	}
}
