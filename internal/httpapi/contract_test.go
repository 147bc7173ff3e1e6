package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-json-experiment/json"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
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
	// A batch is answered 200 whatever is in it: what the contract does not allow is one deduction's problem.
	if a.status < 300 && route.Operation.OperationID != "createDeductions" {
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

// Every body of the contract is one the API can read: its examples, and each member it names.
func TestBodiesOfTheContractAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fill := strings.NewReplacer("{sku}", "kettle", "{id}", "019ad1f0-7d3a-7bc4-9b65-0d4c6f2f7e11")
	bodies := 0
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			content := op.RequestBody.Value.Content["application/json"]
			for _, example := range examplesOf(content) {
				bodies++
				body, err := json.Marshal(example)
				if err != nil {
					t.Fatal(err)
				}
				a := w.call(t, shop, method, fill.Replace(path), string(body), key(fmt.Sprint(bodies))...)
				if a.status == 400 || a.status == 415 || strings.Contains(string(a.body), ":invalid-field") {
					t.Errorf("the example %s of %s is refused: %s", body, op.OperationID, a.body)
				}
			}
			for pointer, body := range members(content.Schema.Value, "", func(v string) string { return v }) {
				a := w.call(t, shop, method, fill.Replace(path), body, key("k")...)
				p := problemOf(t, a)
				if !slices.Contains(pointers(p), pointer) || strings.Contains(string(a.body), "not a member") {
					t.Errorf("%s does not know the member %s: %s", op.OperationID, pointer, a.body)
				}
			}
		}
	}
	if bodies < 8 {
		t.Errorf("found only %d examples", bodies)
	}
}

// problemOf is why a body is refused that is wrong in its fields; in a batch, its first deduction.
func problemOf(t *testing.T, a answer) openapi.Problem {
	t.Helper()
	if a.status != 200 {
		return a.problem(t, 422, "invalid-field")
	}
	results := decode[openapi.DeductionBatchResult](t, a).Results
	if len(results) != 1 || results[0].Status != 422 || results[0].Problem == nil {
		t.Fatalf("got %s", a.body)
	}
	return *results[0].Problem
}

func examplesOf(m *openapi3.MediaType) []any {
	var all []any
	if m.Example != nil {
		all = append(all, m.Example)
	}
	for _, e := range m.Examples {
		all = append(all, e.Value.Value)
	}
	return all
}

// members are bodies with one member each, which is null, by the pointer to it.
func members(schema *openapi3.Schema, at string, around func(string) string) map[string]string {
	all := map[string]string{}
	for name, property := range schema.Properties {
		within := func(v string) string { return around(`{"` + name + `":` + v + `}`) }
		all[at+"/"+name] = within("null")
		if entries := property.Value.Items; entries != nil {
			maps.Copy(all, members(entries.Value, at+"/"+name+"/0", func(v string) string { return within("[" + v + "]") }))
		}
	}
	return all
}
