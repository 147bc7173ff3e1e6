package httpapi

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// route is one operation of the contract: where it is, who may call it and with which query parameters.
type route struct {
	method  string
	pattern string
	scope   Scope
	or      Scope // suffices as well, if any
	query   []string
	body    int64 // bytes a body may have, when it is not maxBody
	serve   http.HandlerFunc
	streams bool // it has other limits, see [maxStreamTime]

	name string // method and pattern, in logs and metrics
	log  *slog.Logger
	observer
}

// limit is how many bytes a body may have.
func (r *route) limit() int64 { return max(r.body, maxBody) }

// routes of the API. That they are those of openapi.yaml, scopes and parameters included, is tested.
func routes(w *openapi.ServerInterfaceWrapper) []route {
	const (
		get, put, post = http.MethodGet, http.MethodPut, http.MethodPost

		items     = "/v1/stock"
		item      = "/v1/stock/{sku}"
		orders    = "/v1/deductions"
		order     = "/v1/orders/{order_id}"
		deduction = "/v1/deductions/{id}"
		operation = "/v1/operations/{key}"
	)
	page := func(names ...string) []string { return append(names, "limit", "cursor") }
	at := []string{"location"}
	return []route{
		{method: post, pattern: orders, scope: ScopeDeductions, serve: w.CreateDeduction},
		{method: post, pattern: orders + "/batch", scope: ScopeDeductions, body: maxBatch, serve: w.CreateDeductions},
		{method: post, pattern: order + "/commit", scope: ScopeDeductions, serve: w.CommitOrder},
		{method: post, pattern: order + "/release", scope: ScopeDeductions, serve: w.ReleaseOrder},
		{method: post, pattern: order + "/returns", scope: ScopeDeductions, serve: w.ReturnOrder},
		{method: get, pattern: orders, scope: ScopeDeductions, serve: w.ListDeductions, query: page("order_id", "number", "state")},
		{method: get, pattern: deduction, scope: ScopeDeductions, serve: w.GetDeduction},
		{method: post, pattern: deduction + "/commit", scope: ScopeDeductions, serve: w.CommitDeduction},
		{method: post, pattern: deduction + "/release", scope: ScopeDeductions, serve: w.ReleaseDeduction},
		{method: post, pattern: deduction + "/extend", scope: ScopeDeductions, serve: w.ExtendDeduction},
		{method: post, pattern: deduction + "/returns", scope: ScopeDeductions, serve: w.ReturnDeduction},
		{method: get, pattern: item + "/explain", scope: ScopeAdmin, serve: w.ExplainItem, query: at},
		{method: get, pattern: "/v1/invariants", scope: ScopeAdmin, serve: w.GetInvariants},
		{method: get, pattern: operation, scope: ScopeDeductions, or: ScopeStockWrite, serve: w.GetOperation},
		{method: post, pattern: operation + "/void", scope: ScopeDeductions, or: ScopeStockWrite, serve: w.VoidOperation},
		{method: get, pattern: items, scope: ScopeStockRead, serve: w.ListItems, query: page("sku_prefix", "location", "low")},
		{method: post, pattern: items + "/import", scope: ScopeStockWrite, serve: w.ImportStock, query: []string{"create", "overwrite", "results"}, streams: true},
		{method: get, pattern: items + "/export", scope: ScopeStockRead, serve: w.ExportStock, query: []string{"sku_prefix", "location", "low"}, streams: true},
		{method: get, pattern: "/v1/events", scope: ScopeStockRead, serve: w.ListEvents, query: page("location")},
		{method: get, pattern: item, scope: ScopeStockRead, serve: w.GetItem, query: at},
		{method: put, pattern: item, scope: ScopeStockWrite, serve: w.PutItem, query: at},
		{method: post, pattern: item + "/adjustments", scope: ScopeStockWrite, serve: w.AdjustItem, query: at},
		{method: post, pattern: item + "/stocktakes", scope: ScopeStockWrite, serve: w.OpenStocktake, query: at},
		{method: get, pattern: item + "/stocktakes/{id}", scope: ScopeStockWrite, serve: w.GetStocktake, query: at},
		{method: post, pattern: item + "/stocktakes/{id}/complete", scope: ScopeStockWrite, serve: w.CompleteStocktake, query: at},
		{method: get, pattern: "/v1/settlements/{date}", scope: ScopeStockRead, serve: w.ListSettlements, query: page("location", "format")},
		{method: get, pattern: item + "/movements", scope: ScopeStockRead, serve: w.ListMovements, query: []string{"location", "after_version", "limit"}},
	}
}

// mount puts every route behind admission, and a problem where there is none.
func (a *API) mount(m *metrics, serve openapi.ServerInterface) {
	a.unmatched = &route{name: "none"}
	a.watch(a.unmatched, m)
	a.mux = chi.NewMux()
	a.mux.NotFound(func(w http.ResponseWriter, _ *http.Request) { callOf(w).fail(errNoRoute) })
	a.mux.MethodNotAllowed(a.methodNotAllowed)
	for _, r := range routes(&openapi.ServerInterfaceWrapper{Handler: serve, ErrorHandlerFunc: badParameter}) {
		r.name = r.method + " " + r.pattern
		a.watch(&r, m)
		a.mux.MethodFunc(r.method, r.pattern, func(w http.ResponseWriter, req *http.Request) {
			if c := callOf(w); c.admitted(&r) {
				r.serve(w, req)
			}
		})
	}
	for _, r := range documents() {
		r.name = r.method + " " + r.pattern
		a.watch(&r, m)
		a.mux.MethodFunc(r.method, r.pattern, func(w http.ResponseWriter, req *http.Request) {
			callOf(w).route = &r
			r.serve(w, req)
		})
	}
}

// watch gives r its log and its metrics.
func (a *API) watch(r *route, m *metrics) {
	r.log = a.log.With(slog.String("route", r.name))
	r.observer = m.observer(r.name)
}

// callOf is the call whose answer w is: every handler of this package is given one.
func callOf(w http.ResponseWriter) *call { return w.(*call) }

// methodNotAllowed answers 405 with the methods the path has, or 404 if it has none.
func (a *API) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	c := callOf(w)
	path := r.URL.EscapedPath()
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
		if a.mux.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		c.fail(errNoRoute)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	c.fail(errMethodNotAllowed)
}
