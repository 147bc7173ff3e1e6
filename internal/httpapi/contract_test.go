package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// contract is the openapi.yaml at the root of the repository.
var contract = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

func loadContract(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// checkContract fails the test if the answer is not one the contract has for the request, or if the request was accepted
// although the contract does not allow it.
func checkContract(t testing.TB, req *http.Request, body string, a answer) {
	t.Helper()
	doc := loadContract(t)
	route, params := findRoute(doc, req)
	if route == nil {
		return
	}
	req = req.Clone(context.Background())
	req.Body = io.NopCloser(strings.NewReader(body))
	in := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true,
		},
	}
	if a.status < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s %s was accepted, but the contract does not allow it: %v", req.Method, req.URL, body, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.status, Header: a.header, Options: in.Options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(a.body)); err != nil {
		t.Errorf("%s %s answered %d with what is not in the contract: %v\n%s", req.Method, req.URL, a.status, err, a.body)
	}
}

// findRoute finds the operation by the escaped path: a SKU may have slashes and braces.
func findRoute(doc *openapi3.T, req *http.Request) (*routers.Route, map[string]string) {
	path := strings.Split(req.URL.EscapedPath(), "/")
	for pattern, item := range doc.Paths.Map() {
		op := item.GetOperation(req.Method)
		if params := match(strings.Split(pattern, "/"), path); op != nil && params != nil {
			return &routers.Route{Spec: doc, Path: pattern, PathItem: item, Method: req.Method, Operation: op}, params
		}
	}
	return nil, nil
}

func match(pattern, path []string) map[string]string {
	if len(pattern) != len(path) {
		return nil
	}
	params := map[string]string{}
	for i, p := range pattern {
		switch {
		case strings.HasPrefix(p, "{"):
			value, err := url.PathUnescape(path[i])
			if err != nil {
				return nil
			}
			params[strings.Trim(p, "{}")] = value
		case p != path[i]:
			return nil
		}
	}
	return params
}

// The served copy is embedded from beside the generated code, where `go generate` puts it.
func TestContractIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a := w.call(t, "", "GET", "/openapi.yaml", "").want(t, 200)
	if string(a.body) != string(want) {
		t.Error("what is served is not the openapi.yaml of the repository: go generate ./internal/httpapi/internal/openapi")
	}
}
