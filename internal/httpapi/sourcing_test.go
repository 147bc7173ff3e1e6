package httpapi_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// sharesOf are the lines of an answer, in short.
func sharesOf(d openapi.Deduction) []string {
	var all []string
	for _, l := range d.Lines {
		of := l.Line
		if l.RequestLine != nil {
			of = *l.RequestLine
		}
		all = append(all, fmt.Sprintf("%d of %d: %s %d = %d + %d", l.Line, of, l.Location, l.Quantity, l.Granted, l.Missing))
	}
	return all
}

func TestAllowPartialTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 5)
	w.stockUp(t, "cup", 0)
	const body = `{"order_id":"1","allow_partial":true,"lines":[
		{"sku":"kettle","quantity":3},{"sku":"cup","quantity":2},{"sku":"kettle","quantity":4}]}`
	want := []string{"1 of 1: default 3 = 3 + 0", "2 of 2: default 2 = 0 + 2", "3 of 3: default 4 = 2 + 2"}
	for range 2 {
		d := decode[openapi.Deduction](t, w.call(t, shop, "POST", "/v1/deductions", body, key("k")...).want(t, 201))
		if diff := cmp.Diff(want, sharesOf(d)); diff != "" {
			t.Error(diff)
		}
	}
	p := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"2","allow_partial":true,"lines":[
		{"sku":"kettle","quantity":3},{"sku":"cup","quantity":2}]}`, key("k2")...).problem(t, 409, "insufficient-stock")
	if len(*p.Short) != 2 {
		t.Errorf("nothing at all: %+v", *p.Short)
	}
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[
		{"sku":"kettle","quantity":3},{"sku":"cup","quantity":2},{"sku":"kettle","quantity":4}]}`, key("k")...).
		problem(t, 422, "idempotency-key-reused")
}

func TestCustomerLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 500)
	order := func(id, customer string) answer {
		return w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"`+id+`","customer":"`+customer+`","customer_limit":2,"lines":[
			{"sku":"kettle","quantity":1}]}`, key(id)...)
	}
	var got atomic.Int64
	var asking sync.WaitGroup
	for i := range 50 {
		asking.Go(func() {
			if a := order(fmt.Sprint(i), "ann"); a.status == 201 {
				got.Add(1)
			} else {
				a.problem(t, 409, "customer-limit-reached")
			}
		})
	}
	asking.Wait()
	if got.Load() != 2 {
		t.Errorf("one customer with a limit of 2 got %d", got.Load())
	}
	p := order("more", "ann").problem(t, 409, "customer-limit-reached")
	want := []openapi.LimitedLine{{
		Pointer: "/lines/0/quantity", Sku: "kettle", Location: "default", Requested: 1, Has: 2, Limit: 2,
	}}
	if diff := cmp.Diff(want, *p.Limited); diff != "" || p.Retry != openapi.SameKey {
		t.Errorf("retry %s, %s", p.Retry, diff)
	}
	d := decode[openapi.Deduction](t, order("other", "bob").want(t, 201))
	if d.Customer == nil || *d.Customer != "bob" || *d.CustomerLimit != 2 {
		t.Errorf("got %+v", d)
	}
}

func TestSourcingNamesWhereItTook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUpAt(t, "kettle", "york", 4)
	w.stockUpAt(t, "kettle", "leeds", 7)
	w.stockUpAt(t, "kettle", "hull", 20)
	take := func(token, id, line string) answer {
		return w.call(t, token, "POST", "/v1/deductions", `{"order_id":"`+id+`","lines":[{"sku":"kettle",`+line+`}]}`, key(id)...)
	}
	for i, c := range []struct{ token, line, want string }{
		{shop, `"quantity":5,"sourcing":"any","locations":["nowhere","york","leeds"]`, "[1 of 1: leeds 5 = 5 + 0]"},
		{york, `"quantity":3,"sourcing":"any","split":true`, "[1 of 1: york 3 = 3 + 0]"},
		{york, `"quantity":3,"sourcing":"any","split":true`, "[1 of 1: leeds 2 = 2 + 0 2 of 1: york 1 = 1 + 0]"},
		{shop, `"quantity":20,"sourcing":"any"`, "[1 of 1: hull 20 = 20 + 0]"},
	} {
		d := decode[openapi.Deduction](t, take(c.token, fmt.Sprint(i), c.line).want(t, 201))
		if got := fmt.Sprint(sharesOf(d)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.line, got, c.want)
		}
	}
	if p := take(shop, "none-left", `"quantity":1,"sourcing":"any","split":true`).problem(t, 409, "insufficient-stock"); len(*p.Short) != 3 {
		t.Errorf("short lines %+v", *p.Short)
	}
	take(york, "not-theirs", `"quantity":1,"sourcing":"any","locations":["york","hull"]`).problem(t, 403, "forbidden")
	w.stockUpAt(t, "mug", "hull", 1) // a short line beside the unknown one would be an answer as good
	for _, line := range []string{`"quantity":1,"sourcing":"any","locations":["a","b"]`, `"quantity":1,"sourcing":"any"`} {
		sku := `{"order_id":"u","lines":[{"sku":"mug","quantity":1,"location":"hull"},{"sku":"no",` + line + `}]}`
		p := w.call(t, shop, "POST", "/v1/deductions", sku, key("u")...).problem(t, 422, "unknown-item")
		if want := []openapi.UnknownLine{{Pointer: "/lines/1/sku", Sku: "no"}}; cmp.Diff(want, *p.Unknown) != "" {
			t.Errorf("unknown %+v", *p.Unknown)
		}
	}
}
