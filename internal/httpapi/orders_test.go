package httpapi_test

import (
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// TestAnOrderIsChangedAsOne: commit, release and return of all its deductions.
func TestAnOrderIsChangedAsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	w.stockUpAt(t, "kettle", "york", 10)
	hold := func(order, part, location string) {
		w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"`+order+`","part":"`+part+`","hold_seconds":60,
			"lines":[{"sku":"kettle","location":"`+location+`","quantity":2}]}`, key("hold"+order[:1]+part)...).want(t, 201)
	}
	hold("a/b c", "1", "default")
	hold("a/b c", "2", "york")
	const path = "/v1/orders/a%2Fb%20c"
	for again, replayed := range []string{"", "true"} {
		a := w.call(t, shop, "POST", path+"/commit", "").want(t, 200)
		done := decode[openapi.OrderResult](t, a)
		if done.OrderId != "a/b c" || len(done.Deductions) != 2 || done.Deductions[1].State != openapi.Committed ||
			a.header.Get("Idempotent-Replayed") != replayed || (*done.Deductions[0].Items)[0].OnHand != 8 {
			t.Errorf("time %d: %s with %v", again, a.body, a.header)
		}
	}
	p := w.call(t, shop, "POST", path+"/release", "{}").problem(t, 409, "wrong-state")
	if p.Deduction == nil || p.Deduction.State != openapi.Committed {
		t.Errorf("got %+v", p)
	}
	w.call(t, shop, "POST", path+"/returns", "").problem(t, 400, "idempotency-key-missing")
	w.call(t, shop, "POST", path+"/returns", `{"reason":"broken"}`, key("back")...).want(t, 201)
	a := w.call(t, shop, "POST", path+"/returns", `{"reason":"broken"}`, key("back")...).want(t, 201)
	if done := decode[openapi.OrderResult](t, a); a.header.Get("Idempotent-Replayed") != "true" || done.Deductions[0].State != openapi.Returned {
		t.Errorf("got %s", a.body)
	}
	o := decode[openapi.Operation](t, w.call(t, shop, "GET", operationAt("back"), "").want(t, 200))
	if o.Kind != openapi.OperationKindReturnOrder || len(*o.Deductions) != 2 {
		t.Errorf("got %+v", o)
	}
	w.call(t, other, "POST", path+"/release", "").problem(t, 404, "not-found")
	w.call(t, shop, "POST", "/v1/orders/%20/release", "").problem(t, 422, "invalid-field")
	hold("c", "1", "york")
	if done := decode[openapi.OrderResult](t, w.call(t, shop, "POST", "/v1/orders/c/release", "").want(t, 200)); done.Deductions[0].State != openapi.Released {
		t.Errorf("got %+v", done)
	}
}

// TestADryRunTellsAndDoesNothing, of a deduction and of an adjustment, whatever the verdict.
func TestADryRunTellsAndDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 3)
	const dry = `{"order_id":"1","dry_run":true,"hold_seconds":60,"lines":[{"sku":"kettle","quantity":2}]}`
	a := w.call(t, shop, "POST", "/v1/deductions", dry, key("k")...).want(t, 200)
	told := decode[openapi.DeductionRehearsal](t, a)
	if !told.DryRun || told.State != openapi.Held || told.DeductionId != nil || told.Lines[0].Held != 2 || told.Items[0].Available != 1 || a.header.Get("Location") != "" {
		t.Errorf("got %s", a.body)
	}
	w.call(t, shop, "GET", operationAt("k"), "").problem(t, 404, "not-found")
	short := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","dry_run":true,"lines":[{"sku":"kettle","quantity":4}]}`, key("k")...)
	if p := short.problem(t, 409, "insufficient-stock"); (*p.Short)[0].Available != 3 {
		t.Errorf("got %s", short.body)
	}
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","dry_run":false,"hold_seconds":60,"lines":[{"sku":"kettle","quantity":2}]}`, key("k")...).want(t, 201)
	again := w.call(t, shop, "POST", "/v1/deductions", dry, key("k")...).want(t, 200)
	if told := decode[openapi.DeductionRehearsal](t, again); told.DeductionId == nil || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s", again.body)
	}

	const path = "/v1/stock/kettle/adjustments"
	a = w.call(t, shop, "POST", path, `{"kind":"adjust","delta":-1,"dry_run":true}`, key("a")...).want(t, 200)
	if told := decode[openapi.AdjustmentRehearsal](t, a); !told.DryRun || told.DeltaOnHand != -1 || told.Item.OnHand != 2 {
		t.Errorf("got %s", a.body)
	}
	w.call(t, shop, "POST", path, `{"kind":"adjust","delta":-2,"dry_run":true}`, key("a")...).problem(t, 409, "insufficient-stock")
	w.call(t, shop, "POST", path, `{"kind":"count","set_to":2,"dry_run":true}`, key("a")...).problem(t, 428, "precondition-required")
	w.call(t, shop, "GET", operationAt("a"), "").problem(t, 404, "not-found")
	item := decode[openapi.Item](t, w.call(t, reader, "GET", "/v1/stock/kettle?location=default", "").want(t, 200))
	if item.OnHand != 3 || item.Held != 2 || item.Version != 2 {
		t.Errorf("got %+v", item)
	}
}
