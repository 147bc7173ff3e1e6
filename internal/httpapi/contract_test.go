package httpapi_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"

	"github.com/holdfast-stock/holdfast/internal/httpapi/contract"
	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// valid reports whether the contract is a valid document, its examples included.
var valid = sync.OnceValue(func() error {
	doc, err := contract.Load()
	if err != nil {
		return err
	}
	return doc.Validate(context.Background())
})

func loadContract(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := contract.Load()
	if err == nil {
		err = valid()
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// checkContract fails the test if the answer is not one the contract has for the request, or if the request was accepted
// although the contract does not allow it.
func checkContract(t testing.TB, req *http.Request, body string, a answer) {
	t.Helper()
	if err := contract.Check(req, []byte(body), contract.Answer{Status: a.status, Header: a.header, Body: a.body}); err != nil {
		t.Error(err)
	}
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
			if content == nil {
				continue // a stream of rows, which has tests of its own
			}
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
