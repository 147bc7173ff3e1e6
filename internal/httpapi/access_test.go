package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

func TestOnlyKnownTokensAreServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer nope", "Basic " + shop, shop, "Bearer  " + shop, "Bearer " + shop + " ", "Bearer " + strings.ToUpper(shop)} {
		req, err := http.NewRequest("GET", w.server.URL+"/v1/stock", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		if strings.TrimSpace(header) == "Bearer "+shop { // net/http trims what is around a value
			w.send(t, req, "").want(t, 200)
			continue
		}
		a := w.send(t, req, "")
		a.problem(t, 401, "unauthenticated")
		if got := a.header.Get("WWW-Authenticate"); got != `Bearer realm="holdfast"` {
			t.Errorf("WWW-Authenticate %q", got)
		}
	}
	w.call(t, shop, "GET", "/v1/stock", "", "Authorization", "Bearer "+shop).problem(t, 400, "duplicate-header")
	w.call(t, "", "GET", "/v1/stock", "", "Authorization", "bearer "+shop).want(t, 200)
	if log := w.log.String(); strings.Contains(log, shop) || !strings.Contains(log, `"client":"shop"`) {
		t.Errorf("the log shows a token, or not who called:\n%s", log)
	}
}

// public are the only paths that need no token. Their pages tell nothing but what is in the repository.
var public = []string{"GET /openapi.yaml", "GET /docs", "GET /docs/{file}"}

// Everything that the router answers to asks for a token first, and has a row in the table of scopes, which the next test goes through.
func TestEveryPathAsksForAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ruled []string
	for _, r := range httpapi.RouteRows() {
		ruled = append(ruled, r.Method+" "+r.Pattern)
	}
	mounted := w.api.Mounted()
	if len(mounted) < 20 {
		t.Fatalf("found only %v", mounted)
	}
	for _, name := range mounted {
		if slices.Contains(public, name) {
			continue
		}
		if !slices.Contains(ruled, name) {
			t.Errorf("%s has no scope", name)
		}
		method, pattern, _ := strings.Cut(name, " ")
		for _, token := range []string{"", "no-token-of-this-service"} {
			w.call(t, token, method, filled(pattern), "").problem(t, 401, "unauthenticated")
		}
	}
}

// filled is a path of the pattern, with things that are not there.
func filled(pattern string) string {
	return strings.NewReplacer("{sku}", "kettle", "{id}", "019ad1f0-7d3a-7bc4-9b65-0d4c6f2f7e11", "{order_id}", "1", "{key}", "k", "{date}", "2026-01-31").
		Replace(pattern)
}

// Whatever belongs to a client is not there for another one with the same scopes, by whatever path. A key is the exception: each client
// has its own of that name, so that voiding it does nothing to the other's, which has a test of its own.
func TestWhatBelongsToOthersIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	hold := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"1","hold_seconds":600,"lines":[{"sku":"kettle","quantity":1}]}`, key("k")...).want(t, 201)
	count := w.call(t, shop, "POST", "/v1/stock/kettle/stocktakes", `{"lease_seconds":600}`, key("c")...).want(t, 201)
	last := func(a answer) string {
		place := a.header.Get("Location")
		return place[strings.LastIndex(place, "/")+1:]
	}
	bodies := map[string]string{"extend": `{"hold_seconds":60}`, "complete": `{"counted":1}`}
	asked := 0
	for _, r := range httpapi.RouteRows() {
		if !strings.Contains(r.Pattern, "_id}") && !strings.Contains(r.Pattern, "{id}") && !strings.Contains(r.Pattern, "{key}") || strings.HasSuffix(r.Pattern, "/void") {
			continue
		}
		asked++
		id := last(hold)
		if strings.Contains(r.Pattern, "stocktakes") {
			id = last(count)
		}
		path := filled(strings.Replace(r.Pattern, "{id}", id, 1))
		body := bodies[r.Pattern[strings.LastIndex(r.Pattern, "/")+1:]]
		w.call(t, other, r.Method, path, body, key("o")...).problem(t, 404, "not-found")
	}
	if asked < 10 {
		t.Errorf("asked for only %d things", asked)
	}
	d := decode[openapi.Deduction](t, w.call(t, shop, "GET", hold.header.Get("Location"), "").want(t, 200))
	if d.State != openapi.Held || d.Revision != 1 {
		t.Errorf("another client did this to a hold: %+v", d)
	}
}

// Every operation, asked by a client with each scope alone: only those of its table row open it.
func TestEachScopeOpensItsOwnRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	scopes := []httpapi.Scope{httpapi.ScopeStockRead, httpapi.ScopeStockWrite, httpapi.ScopeDeductions, httpapi.ScopeAdmin}
	var all []httpapi.Token
	for _, s := range scopes {
		all = append(all, httpapi.Token{Name: string(s), SHA256: httpapi.HashToken(string(s)), Scopes: []httpapi.Scope{s}})
	}
	writeTokens(t, w.tokens, all)
	if err := w.clients.Reload(); err != nil {
		t.Fatal(err)
	}
	for _, route := range httpapi.RouteRows() {
		for _, s := range scopes {
			a := w.call(t, string(s), route.Method, filled(route.Pattern), "")
			if open := slices.Contains(route.Scopes, s) || s == httpapi.ScopeAdmin; open != (a.status != 403) {
				t.Errorf("%s %s with scope %s: %d", route.Method, route.Pattern, s, a.status)
			}
			if a.status == 403 {
				a.problem(t, 403, "forbidden")
			}
		}
	}
}

func TestLocationsLimitAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, l := range []string{"default", "york", "leeds"} {
		w.call(t, shop, "PUT", "/v1/stock/kettle?location="+l, `{}`).want(t, 201)
		w.call(t, shop, "POST", "/v1/stock/kettle/adjustments?location="+l, `{"kind":"receive","delta":10}`, key(l)...).want(t, 201)
	}
	w.call(t, shop, "PUT", "/v1/stock/cup", `{}`).want(t, 201)
	deduct := func(token, order, location string) answer {
		return w.call(t, token, "POST", "/v1/deductions", `{"order_id":"`+order+`","hold_seconds":60,"lines":[
			{"sku":"kettle","location":"york","quantity":1},{"sku":"kettle","location":"`+location+`","quantity":1}]}`, key(order)...)
	}
	deduct(york, "1", "default").problem(t, 403, "forbidden")
	mine := deduct(york, "2", "leeds").want(t, 201)
	w.call(t, york, "POST", mine.header.Get("Location")+"/commit", "").want(t, 200)

	w.call(t, york, "GET", "/v1/stock/kettle?location=default", "").problem(t, 403, "forbidden")
	w.call(t, york, "PUT", "/v1/stock/kettle", `{}`).problem(t, 403, "forbidden")
	w.call(t, york, "PUT", "/v1/stock/kettle?location=york", `{}`).want(t, 200)
	w.call(t, york, "POST", "/v1/stock/kettle/adjustments", `{"kind":"receive","delta":1}`, key("x")...).problem(t, 403, "forbidden")
	w.call(t, york, "GET", "/v1/stock/kettle/movements", "").problem(t, 403, "forbidden")
	w.call(t, york, "GET", "/v1/stock/cup", "").problem(t, 404, "not-found")
	all := decode[openapi.ItemLocations](t, w.call(t, york, "GET", "/v1/stock/kettle", "").want(t, 200))
	if len(all.Locations) != 2 || all.Totals.OnHand != 18 {
		t.Errorf("sees %+v", all)
	}
	w.call(t, york, "GET", "/v1/stock", "").problem(t, 403, "forbidden")
	w.call(t, york, "GET", "/v1/stock?location=york", "").want(t, 200)
	w.call(t, york, "GET", "/v1/stock?location=default", "").problem(t, 403, "forbidden")

	// A deduction that was made when the token reached further can no more be touched.
	far := tokens()
	far[3].Locations = nil
	writeTokens(t, w.tokens, far)
	if err := w.clients.Reload(); err != nil {
		t.Fatal(err)
	}
	path := deduct(york, "3", "default").want(t, 201).header.Get("Location")
	far[3].Locations = tokens()[3].Locations[:1]
	writeTokens(t, w.tokens, far)
	if err := w.clients.Reload(); err != nil {
		t.Fatal(err)
	}
	w.call(t, york, "GET", path, "").problem(t, 403, "forbidden")
	w.call(t, york, "GET", "/v1/deductions?order_id=3", "").problem(t, 403, "forbidden")
	for _, action := range []string{"commit", "release", "returns"} {
		w.call(t, york, "POST", path+"/"+action, "", key("y")...).problem(t, 403, "forbidden")
	}
	w.call(t, york, "POST", path+"/extend", `{"hold_seconds":60}`).problem(t, 403, "forbidden")
	deduct(york, "3", "default").problem(t, 403, "forbidden") // a replay is authorised anew
	page := decode[openapi.ItemList](t, w.call(t, york, "GET", "/v1/stock", "").want(t, 200))
	if !slices.EqualFunc(page.Items, []string{"york"}, func(i openapi.Item, l string) bool { return i.Location == l }) {
		t.Errorf("a token for one location lists %+v", page.Items)
	}
}
