package httpapi_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// operationAt is the path of a key, which is one segment.
func operationAt(key string) string { return "/v1/operations/" + url.PathEscape(key) }

func TestAKeyIsLookedUpAndVoided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	w.call(t, shop, "GET", operationAt("k"), "").problem(t, 404, "not-found")
	made := w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 201)
	looked := decode[openapi.Operation](t, w.call(t, shop, "GET", operationAt("k"), "").want(t, 200))
	if looked.Kind != openapi.OperationKindDeduct || looked.Deduction == nil || "/v1/deductions/"+looked.Deduction.Id.String() != made.header.Get("Location") {
		t.Errorf("got %+v", looked)
	}
	w.call(t, other, "GET", operationAt("k"), "").problem(t, 404, "not-found")

	// What happened is answered untouched; the other client's key of this name is its own to void.
	given := w.call(t, shop, "POST", operationAt("k")+"/void", "").want(t, 200)
	if o := decode[openapi.Operation](t, given); o.Kind != openapi.OperationKindDeduct || given.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s with %v", given.body, given.header)
	}
	theirs := w.call(t, other, "POST", operationAt("k")+"/void", "{}").want(t, 200)
	if o := decode[openapi.Operation](t, theirs); o.Kind != openapi.OperationKindVoid || theirs.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("got %s with %v", theirs.body, theirs.header)
	}
	again := w.call(t, other, "POST", operationAt("k")+"/void", "").want(t, 200)
	if again.header.Get("Idempotent-Replayed") != "true" || string(again.body) != string(theirs.body) {
		t.Errorf("voided twice: %s with %v", again.body, again.header)
	}
	p := w.call(t, other, "POST", "/v1/deductions", take, key("k")...).problem(t, 409, "idempotency-key-voided")
	if p.Retry != openapi.NewKey || p.Outcome != openapi.None {
		t.Errorf("got %+v", p)
	}
	w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 201) // a replay
}

// TestAVoidKeyIsRefusedWhereTheGateRefuses: the gate knows nothing of keys, so its "sold out" is no answer either.
func TestAVoidKeyIsRefusedWhereTheGateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 0)
	w.call(t, shop, "POST", operationAt("k")+"/void", "").want(t, 200)
	for range 3 { // the gate's answers are remembered for a moment
		w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).problem(t, 409, "idempotency-key-voided")
	}
}

// TestEveryKeyIsReachable: a key is any visible ASCII, in the header as in the path.
func TestEveryKeyIsReachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1000)
	all := []string{"/", "//", "..", ".", "a/b", "%", "%25", "%2F", "a?b", "a#b", "a+b", "void", "k/void", strings.Repeat("~", 255)}
	for c := byte('!'); c <= '~'; c++ {
		all = append(all, "k"+string(c))
	}
	for _, k := range all {
		body := `{"order_id":` + quote(k[:min(len(k), 100)]) + `,"lines":[{"sku":"kettle","quantity":1}]}`
		made := decode[openapi.Deduction](t, w.call(t, shop, "POST", "/v1/deductions", body, key(k)...).want(t, 201))
		for _, path := range []string{operationAt(k), operationAt(`"` + k + `"`)} {
			if strings.Contains(k, `"`) && path != operationAt(k) {
				continue // a quoted key has no quotes within
			}
			o := decode[openapi.Operation](t, w.call(t, shop, "GET", path, "").want(t, 200))
			if o.Key != k || o.Deduction.Id != made.Id {
				t.Errorf("%s: %+v", path, o)
			}
		}
	}
	for _, k := range []string{"a b", "ä", "\x7f", strings.Repeat("k", 256), `"k`} {
		p := w.call(t, shop, "GET", operationAt(k), "").problem(t, 422, "invalid-field")
		if at := pointers(p); len(at) != 1 || at[0] != "key" {
			t.Errorf("%q: %v", k, at)
		}
	}
	w.call(t, shop, "GET", operationAt(`""`), "").problem(t, 400, "idempotency-key-missing")
}

// TestKeysOfAdjustments are for who writes stock, and only where the token is for.
func TestKeysOfAdjustments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, location := range []string{"default", "york"} {
		w.call(t, shop, "PUT", "/v1/stock/kettle?location="+location, "{}").want(t, 201)
		w.call(t, shop, "POST", "/v1/stock/kettle/adjustments?location="+location, `{"kind":"receive","delta":7}`, key("in "[:2]+location)...).want(t, 201)
	}
	o := decode[openapi.Operation](t, w.call(t, shop, "GET", operationAt("indefault"), "").want(t, 200))
	if o.Kind != openapi.OperationKindAdjust || o.Movement.DeltaOnHand != 7 || o.Item.Location != "default" || o.Deduction != nil {
		t.Errorf("got %+v", o)
	}
	w.call(t, reader, "GET", operationAt("indefault"), "").problem(t, 403, "forbidden")
	w.call(t, york, "PUT", "/v1/stock/cup?location=york", "{}").want(t, 201)
	w.call(t, york, "POST", "/v1/stock/cup/adjustments?location=york", `{"kind":"receive","delta":7}`, key("mine")...).want(t, 201)
	w.call(t, york, "GET", operationAt("mine"), "").want(t, 200)
}
