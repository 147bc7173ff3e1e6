package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// ProblemRow is a row of the error table, for tests.
type ProblemRow struct {
	Cause  error
	Name   string
	Status int
}

// ProblemRows are all rows of the error table.
func ProblemRows() []ProblemRow {
	var rows []ProblemRow
	for _, p := range problems() {
		rows = append(rows, ProblemRow{p.cause, p.name, p.status})
	}
	return rows
}

// RouteRow is what a route asks for, for tests.
type RouteRow struct {
	Method, Pattern string
	Scopes          []Scope // any of them
	Query           []string
}

// RouteRows are all routes that need a token.
func RouteRows() []RouteRow {
	var rows []RouteRow
	for _, r := range routes(new(openapi.ServerInterfaceWrapper)) {
		scopes := []Scope{r.scope}
		if r.or != "" {
			scopes = append(scopes, r.or)
		}
		rows = append(rows, RouteRow{r.method, r.pattern, scopes, r.query})
	}
	return rows
}

// Mounted are the method and path of everything that the router answers to.
func (a *API) Mounted() (all []string) {
	_ = chi.Walk(a.mux, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+pattern)
		return nil
	}) // ours is the only error there can be
	return all
}
