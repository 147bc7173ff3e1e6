package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

func key(k string) []string { return []string{"Idempotency-Key", k} }

func TestPutItemCreatesThenReplaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.call(t, shop, "PUT", "/v1/stock/kettle", `{"safety_stock":5,"low_stock_at":7,"label":"Kettle"}`, "If-None-Match", "*").want(t, 201)
	item := decode[openapi.Item](t, made)
	if item.Available != -5 || *item.LowStockAt != 7 || item.Label != "Kettle" || item.Location != "default" {
		t.Errorf("made %s", made.body)
	}
	if got, want := made.header.Get("ETag"), fmt.Sprintf(`"%d"`, item.Version); got != want {
		t.Errorf("ETag %s, want %s", got, want)
	}

	again := w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`, "If-None-Match", "*").problem(t, 412, "precondition-failed")
	if again.Item == nil || again.Item.Version != item.Version || *again.Etag != made.header.Get("ETag") {
		t.Errorf("412 does not tell the item's figures: %+v", again)
	}
	w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`, "If-Match", `"999"`).problem(t, 412, "precondition-failed")

	changed := w.call(t, shop, "PUT", "/v1/stock/kettle", `{"safety_stock":1}`, "If-Match", made.header.Get("ETag")).want(t, 200)
	item = decode[openapi.Item](t, changed)
	if item.SafetyStock != 1 || item.LowStockAt != nil || item.Label != "" {
		t.Errorf("what was left out did not go back to its default: %s", changed.body)
	}
	w.call(t, shop, "PUT", "/v1/stock/kettle?location=york", `{}`).want(t, 201)
	w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`, "If-None-Match", `"1"`).problem(t, 422, "invalid-field")
	w.call(t, shop, "PUT", "/v1/stock/missing", `{}`, "If-Match", `"1"`).want(t, 404)
}

func TestGetItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUpAt(t, "kettle", "leeds", 3)
	w.stockUpAt(t, "kettle", "york", 4)

	one := w.call(t, reader, "GET", "/v1/stock/kettle?location=york", "").want(t, 200)
	if item := decode[openapi.Item](t, one); item.OnHand != 4 {
		t.Errorf("got %s", one.body)
	}
	etag := one.header.Get("ETag")
	for _, header := range []string{etag, "*", `"x", W/` + etag, `"1",` + etag} {
		a := w.call(t, reader, "GET", "/v1/stock/kettle?location=york", "", "If-None-Match", header).want(t, 304)
		if len(a.body) != 0 || a.header.Get("ETag") != etag {
			t.Errorf("304 has ETag %q and body %q", a.header.Get("ETag"), a.body)
		}
	}
	w.call(t, reader, "GET", "/v1/stock/kettle?location=york", "", "If-None-Match", `"999"`).want(t, 200)

	all := decode[openapi.ItemLocations](t, w.call(t, reader, "GET", "/v1/stock/kettle", "").want(t, 200))
	if all.Totals.OnHand != 7 || all.Totals.Available != 7 || len(all.Locations) != 2 || all.Locations[0].Location != "leeds" {
		t.Errorf("got %+v", all)
	}
	w.call(t, reader, "GET", "/v1/stock/missing", "").problem(t, 404, "not-found")
	w.call(t, reader, "GET", "/v1/stock/kettle?location=hull", "").problem(t, 404, "not-found")
}

func TestListItemsPagesAndFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, sku := range []string{"a", "b", "ba", "bb", "c"} {
		w.stockUp(t, sku, 5)
	}
	w.stockUpAt(t, "b", "york", 1)
	w.call(t, shop, "PUT", "/v1/stock/c", `{"low_stock_at":5}`).want(t, 200)

	list := func(query string) []string {
		t.Helper()
		var names []string
		cursor := ""
		for range 10 {
			page := decode[openapi.ItemList](t, w.call(t, reader, "GET", "/v1/stock?"+query+cursor, "").want(t, 200))
			for _, item := range page.Items {
				names = append(names, item.Sku+"@"+item.Location)
			}
			if page.NextCursor == nil {
				return names
			}
			cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
		}
		t.Fatal("the list has no end")
		return nil
	}
	everything := []string{"a@default", "b@default", "b@york", "ba@default", "bb@default", "c@default"}
	for query, want := range map[string][]string{
		"":                          everything,
		"limit=1":                   everything,
		"limit=4":                   everything,
		"limit=6":                   everything,
		"sku_prefix=b":              everything[1:5],
		"sku_prefix=b&limit=2":      everything[1:5],
		"location=york":             {"b@york"},
		"low=true":                  {"c@default"},
		"low=false&sku_prefix=c":    {"c@default"},
		"sku_prefix=" + "%C3%A4%20": nil,
	} {
		if diff := cmp.Diff(want, list(query)); diff != "" {
			t.Errorf("?%s (-want +got):\n%s", query, diff)
		}
	}
	if empty := w.call(t, reader, "GET", "/v1/stock?location=hull", "").want(t, 200); string(empty.body) != `{"items":[]}` {
		t.Errorf("an empty list is %s", empty.body)
	}
}

func TestAdjustItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 0)
	path := "/v1/stock/kettle/adjustments"

	received := w.call(t, shop, "POST", path, `{"kind":"receive","delta":10,"reason":"delivery","reference":"PO-1"}`, key("1")...).want(t, 201)
	got := decode[openapi.AdjustmentResult](t, received)
	if got.Item.OnHand != 10 || got.Movement.DeltaOnHand != 10 || got.Movement.Reference != "PO-1" || got.Movement.Actor != "shop" {
		t.Errorf("got %s", received.body)
	}
	if received.header.Get("ETag") != fmt.Sprintf(`"%d"`, got.Item.Version) {
		t.Errorf("ETag %s of version %d", received.header.Get("ETag"), got.Item.Version)
	}

	needs := w.call(t, shop, "POST", path, `{"kind":"count","set_to":7}`, key("2")...).problem(t, 428, "precondition-required")
	if needs.Item.OnHand != 10 || *needs.Etag != received.header.Get("ETag") {
		t.Errorf("428 does not tell the item's figures: %+v", needs)
	}
	stale := w.call(t, shop, "POST", path, `{"kind":"count","set_to":7,"expected_on_hand":9}`, key("2")...)
	if p := stale.problem(t, 412, "precondition-failed"); p.Item.OnHand != 10 || stale.header.Get("ETag") != *p.Etag {
		t.Errorf("412 does not tell the item's figures: %s", stale.body)
	}
	w.call(t, shop, "POST", path, `{"kind":"count","set_to":7,"expected_on_hand":10}`, key("2")...).want(t, 201)
	tag := w.call(t, shop, "GET", "/v1/stock/kettle?location=default", "").header.Get("ETag")
	w.call(t, shop, "POST", path, `{"kind":"count","set_to":0}`, append(key("3"), "If-Match", `"999"`)...).want(t, 412)
	w.call(t, shop, "POST", path, `{"kind":"count","set_to":0}`, append(key("3"), "If-Match", tag)...).want(t, 201)

	short := w.call(t, shop, "POST", path, `{"kind":"adjust","delta":-1}`, key("4")...).problem(t, 409, "insufficient-stock")
	if lines := *short.Short; len(lines) != 1 || lines[0].Pointer != "/delta" || lines[0].Sku != "kettle" || lines[0].Available != 0 {
		t.Errorf("got %+v", lines)
	}
	w.call(t, shop, "POST", "/v1/stock/missing/adjustments", `{"kind":"receive","delta":1}`, key("5")...).problem(t, 404, "not-found")
	over := w.call(t, shop, "POST", path, `{"kind":"receive","delta":9007199254740991}`, key("6")...).want(t, 201)
	if decode[openapi.AdjustmentResult](t, over).Item.OnHand != 1<<53-1 {
		t.Errorf("got %s", over.body)
	}
	p := w.call(t, shop, "POST", path, `{"kind":"receive","delta":1}`, key("7")...).problem(t, 422, "invalid-field")
	if !slices.Equal(pointers(p), []string{"/delta"}) {
		t.Errorf("a sum that is too large points at %v", pointers(p))
	}
}

func TestListMovements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	for i := range 4 {
		w.call(t, shop, "POST", "/v1/deductions", fmt.Sprintf(`{"order_id":"%d","lines":[{"sku":"kettle","quantity":2}]}`, i), key(fmt.Sprint(i))...).want(t, 201)
	}
	var all []openapi.Movement
	for after := int64(0); ; {
		page := decode[openapi.MovementList](t, w.call(t, reader, "GET", fmt.Sprintf("/v1/stock/kettle/movements?limit=2&after_version=%d", after), "").want(t, 200))
		all = append(all, page.Movements...)
		if page.NextAfterVersion == nil {
			break
		}
		after = *page.NextAfterVersion
	}
	onHand := int64(0)
	for i, m := range all {
		if onHand += m.DeltaOnHand; m.OnHand != onHand || m.Version != int64(i+1) {
			t.Errorf("movement %d: %+v", i, m)
		}
	}
	last := all[len(all)-1]
	if last.Kind != "deduct" || last.DeductionId == nil || last.OnHand != 2 {
		t.Errorf("last movement %+v", last)
	}
	w.call(t, reader, "GET", "/v1/stock/missing/movements", "").problem(t, 404, "not-found")
}

func TestDeductionTakenWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	w.stockUpAt(t, "cup", "york", 5)
	a := w.call(t, shop, "POST", "/v1/deductions",
		`{"order_id":"1","part":"a","lines":[{"sku":"kettle","quantity":3,"line_id":"x"},{"sku":"cup","location":"york","quantity":5}]}`, key("k")...).want(t, 201)
	d := decode[openapi.Deduction](t, a)
	if d.State != openapi.Committed || d.OrderId != "1" || d.Part != "a" || d.ExpiresAt != nil {
		t.Errorf("got %s", a.body)
	}
	if a.header.Get("Location") != "/v1/deductions/"+d.Id.String() || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers %v", a.header)
	}
	x := "x"
	want := []openapi.DeductionLine{
		{Line: 1, LineId: &x, Sku: "kettle", Location: "default", Quantity: 3, Granted: 3, Committed: 3},
		{Line: 2, Sku: "cup", Location: "york", Quantity: 5, Granted: 5, Committed: 5},
	}
	if diff := cmp.Diff(want, d.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	left := map[string]int64{}
	for _, item := range *d.Items {
		left[item.Sku] = item.Available
	}
	if diff := cmp.Diff(map[string]int64{"kettle": 7, "cup": 0}, left); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	got := w.call(t, shop, "GET", a.header.Get("Location"), "").want(t, 200)
	if diff := cmp.Diff(d, decode[openapi.Deduction](t, got)); diff != "" {
		t.Errorf("looked up (-made +got):\n%s", diff)
	}
	w.call(t, other, "GET", a.header.Get("Location"), "").problem(t, 404, "not-found")
}

func TestRefusalNamesEveryLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1)
	w.stockUp(t, "cup", 9)
	w.stockUp(t, "pot", 2)
	p := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[
		{"sku":"kettle","quantity":2},{"sku":"cup","quantity":9},{"sku":"pot","quantity":2},{"sku":"pot","quantity":1}]}`, key("k")...).problem(t, 409, "insufficient-stock")
	short := map[string]int64{}
	for _, l := range *p.Short {
		short[l.Pointer+" "+l.Sku] = l.Available
		if l.Version != 1 || l.Location != "default" {
			t.Errorf("short line %+v", l)
		}
	}
	if _, ok := short["/lines/0/quantity kettle"]; !ok || len(short) < 2 {
		t.Errorf("short lines %v", short)
	}
	if p.Outcome != openapi.None || p.Retry != openapi.SameKey {
		t.Errorf("outcome %s, retry %s", p.Outcome, p.Retry)
	}

	p = w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[
		{"sku":"kettle","quantity":1},{"sku":"no","quantity":1},{"sku":"cup","location":"york","quantity":1}]}`, key("k")...).problem(t, 422, "unknown-item")
	byDefault, inYork := "default", "york"
	want := []openapi.UnknownLine{
		{Pointer: "/lines/1/sku", Sku: "no", Location: &byDefault}, {Pointer: "/lines/2/sku", Sku: "cup", Location: &inYork},
	}
	if diff := cmp.Diff(want, *p.Unknown); diff != "" {
		t.Errorf("unknown lines (-want +got):\n%s", diff)
	}
}

// hold makes a hold of 10 kettles and 4 cups.
func (w *world) hold(t testing.TB, order string) openapi.Deduction {
	t.Helper()
	return decode[openapi.Deduction](t, w.call(t, shop, "POST", "/v1/deductions",
		`{"order_id":"`+order+`","hold_seconds":600,"lines":[{"sku":"kettle","quantity":10,"line_id":"k"},{"sku":"cup","quantity":4}]}`,
		key("hold " + order)[0], "hold-"+order).want(t, 201))
}

func TestHoldsAreCommittedReleasedExtended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100)
	w.stockUp(t, "cup", 100)
	change := func(d openapi.Deduction, action, body string, headers ...string) answer {
		t.Helper()
		return w.call(t, shop, "POST", "/v1/deductions/"+d.Id.String()+"/"+action, body, headers...)
	}

	d := w.hold(t, "whole")
	if d.State != openapi.Held || d.ExpiresAt == nil || d.Lines[0].Held != 10 {
		t.Errorf("held %+v", d)
	}
	longer := decode[openapi.Deduction](t, change(d, "extend", `{"hold_seconds":86400}`).want(t, 200))
	if !longer.ExpiresAt.After(*d.ExpiresAt) || longer.Revision <= d.Revision {
		t.Errorf("extended %+v", longer)
	}
	done := decode[openapi.Deduction](t, change(d, "commit", "").want(t, 200))
	if done.State != openapi.Committed || done.Lines[0].Committed != 10 || done.Lines[0].Held != 0 {
		t.Errorf("committed %+v", done)
	}
	if again := change(d, "commit", "").want(t, 200); again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("a second commit is no replay")
	}
	p := change(d, "release", "").problem(t, 409, "wrong-state")
	if p.Deduction == nil || p.Deduction.State != openapi.Committed {
		t.Errorf("the problem does not tell the state: %+v", p)
	}
	change(d, "extend", `{"hold_seconds":60}`).problem(t, 409, "wrong-state")

	d = w.hold(t, "partly")
	some := decode[openapi.Deduction](t, change(d, "commit", `{"lines":[{"line_id":"k","quantity":3},{"line":2,"quantity":1}]}`).want(t, 200))
	if l := some.Lines[0]; some.State != openapi.Committed || l.Committed != 3 || l.Released != 7 || l.Held != 0 {
		t.Errorf("committed %+v", some)
	}

	d = w.hold(t, "rest")
	change(d, "commit", `{"lines":[{"line":1,"quantity":3}],"keep_rest":true}`).problem(t, 400, "idempotency-key-missing")
	for i := range 2 { // the second is a replay: 3 are committed, not 6
		a := change(d, "commit", `{"lines":[{"line":1,"quantity":3}],"keep_rest":true}`, key("part")...).want(t, 200)
		if rest := decode[openapi.Deduction](t, a); rest.State != openapi.Held || rest.Lines[0].Committed != 3 || rest.Lines[0].Held != 7 {
			t.Errorf("committed %+v", rest)
		}
		if replayed := a.header.Get("Idempotent-Replayed") == "true"; replayed != (i == 1) {
			t.Errorf("commit %d: replayed %v", i, replayed)
		}
	}
	change(d, "commit", `{"lines":[{"line":1,"quantity":8}]}`).problem(t, 422, "invalid-field")
	p = change(d, "commit", `{"lines":[{"line":3,"quantity":1},{"line_id":"nope","quantity":1}]}`).problem(t, 422, "invalid-field")
	if len(pointers(p)) == 0 || !strings.HasPrefix(pointers(p)[0], "/lines/0") {
		t.Errorf("lines that do not exist point at %v", pointers(p))
	}

	d = w.hold(t, "free")
	free := decode[openapi.Deduction](t, change(d, "release", "{}").want(t, 200))
	if free.State != openapi.Released || free.Lines[0].Released != 10 {
		t.Errorf("released %+v", free)
	}
	change(d, "release", "").want(t, 200)
	change(d, "commit", "").problem(t, 409, "wrong-state")
}

func TestAHoldThatIsOverIsNotRevived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 3)
	a := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","hold_seconds":1,"lines":[{"sku":"kettle","quantity":2}]}`, key("k")...).want(t, 201)
	path := a.header.Get("Location")
	state := func() openapi.DeductionState {
		return decode[openapi.Deduction](t, w.call(t, shop, "GET", path, "").want(t, 200)).State
	}
	for deadline := time.Now().Add(10 * time.Second); state() != openapi.Expired; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the hold never expired")
		}
	}
	for action, body := range map[string]string{"commit": "", "extend": `{"hold_seconds":60}`} {
		p := w.call(t, shop, "POST", path+"/"+action, body).problem(t, 409, "hold-expired")
		if p.Deduction == nil || p.Deduction.State != openapi.Expired || p.Deduction.ExpiresAt == nil || p.Retry != openapi.Never {
			t.Errorf("%s: %+v", action, p)
		}
	}
	// For a second the gate may rest a refusal on figures from before the hold was over.
	taken := answer{}
	for deadline := time.Now().Add(10 * time.Second); taken.status != 201; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the units never came back: %s", taken.body)
		}
		taken = w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"2","lines":[{"sku":"kettle","quantity":2}]}`, key("l")...)
	}
	anew := `{"hold_seconds":60,"reacquire":true}`
	p := w.call(t, shop, "POST", path+"/extend", anew).problem(t, 409, "insufficient-stock")
	if l := (*p.Short)[0]; l.Pointer != "/reacquire" || l.Sku != "kettle" || l.Requested != 2 || l.Available != 1 {
		t.Errorf("short %+v", *p.Short)
	}
	w.call(t, shop, "POST", taken.header.Get("Location")+"/returns", "", key("m")...).want(t, 201)
	if d := decode[openapi.Deduction](t, w.call(t, shop, "POST", path+"/extend", anew).want(t, 200)); d.State != openapi.Held || d.Lines[0].Held != 2 {
		t.Errorf("reacquired %+v", d)
	}
}

func TestReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	a := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","lines":[{"sku":"kettle","quantity":10}]}`, key("k")...).want(t, 201)
	path := a.header.Get("Location") + "/returns"
	w.call(t, shop, "POST", path, "").problem(t, 400, "idempotency-key-missing")
	for range 2 {
		back := w.call(t, shop, "POST", path, `{"lines":[{"line":1,"quantity":4}],"reason":"broken"}`, key("r1")...).want(t, 201)
		if d := decode[openapi.Deduction](t, back); d.Lines[0].Returned != 4 || d.State != openapi.Committed {
			t.Errorf("returned %s", back.body)
		}
	}
	p := w.call(t, shop, "POST", path, `{"lines":[{"line":1,"quantity":7}]}`, key("r2")...).problem(t, 409, "return-exceeds-deducted")
	if (*p.Excess)[0] != (openapi.ExcessLine{Pointer: "/lines/0/quantity", Requested: 7, Possible: 6}) {
		t.Errorf("excess %+v", *p.Excess)
	}
	all := w.call(t, shop, "POST", path, "", key("r3")...).want(t, 201)
	if d := decode[openapi.Deduction](t, all); d.Lines[0].Returned != 10 || d.State != openapi.Returned {
		t.Errorf("returned %s", all.body)
	}
	w.call(t, shop, "POST", path, `{"lines":[{"line":1,"quantity":4}],"reason":"other"}`, key("r1")...).problem(t, 422, "idempotency-key-reused")
}

func TestListDeductions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100)
	for i := range 5 {
		hold := ""
		if i%2 == 1 {
			hold = `"hold_seconds":60,`
		}
		w.call(t, shop, "POST", "/v1/deductions", fmt.Sprintf(`{"order_id":"Ä/1","part":"%d",%s"lines":[{"sku":"kettle","quantity":1}]}`, i, hold), key(fmt.Sprint(i))...).want(t, 201)
	}
	list := func(token, query string) string {
		t.Helper()
		parts, cursor := "", ""
		for range 10 {
			page := decode[openapi.DeductionList](t, w.call(t, token, "GET", "/v1/deductions?order_id=%C3%84%2F1"+query+cursor, "").want(t, 200))
			for _, d := range page.Deductions {
				if parts += d.Part; d.Items != nil {
					t.Error("a list tells items")
				}
			}
			if page.NextCursor == nil {
				return parts
			}
			cursor = "&cursor=" + *page.NextCursor
		}
		t.Fatal("the list has no end")
		return ""
	}
	for query, want := range map[string]string{"": "01234", "&limit=2": "01234", "&limit=5": "01234", "&state=held": "13", "&state=committed&limit=1": "024"} {
		if got := list(shop, query); got != want {
			t.Errorf("%s: parts %s, want %s", query, got, want)
		}
	}
	if got := list(other, ""); got != "" {
		t.Errorf("another client sees %s", got)
	}
}
