package contract_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/contract"
)

const (
	movement = `{"version":1,"kind":"receive","delta_on_hand":1,"delta_held":0,"on_hand":1,"held":0,"reason":"","reference":"","actor":"shop","at":"2026-01-02T03:04:05Z"}`
	levels   = `{"sku":"A","location":"default","on_hand":1,"held":0,"safety_stock":0,"available":1,"version":1}`
	adjusted = `{"movement":` + movement + `,"item":` + levels + `}`
)

// exchange is a request and what it is said to have got.
type exchange struct {
	method, path, body string
	status             int
	kind, answer       string
	headers            []string
}

func adjustment(change ...func(*exchange)) exchange {
	x := exchange{
		"POST", "/v1/stock/A/adjustments", `{"kind":"receive","delta":1}`, 201, "application/json", adjusted,
		[]string{"X-Request-Id", "r", "ETag", `"1"`},
	}
	for _, c := range change {
		c(&x)
	}
	return x
}

func (x *exchange) check() error {
	request := httptest.NewRequest(x.method, x.path, strings.NewReader(x.body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "k")
	answer := contract.Answer{Status: x.status, Header: http.Header{"Content-Type": {x.kind}}, Body: []byte(x.answer)}
	for i := 0; i < len(x.headers); i += 2 {
		answer.Header.Set(x.headers[i], x.headers[i+1])
	}
	return contract.Check(request, []byte(x.body), answer)
}

func replace(old, by string) func(*exchange) {
	return func(x *exchange) { x.answer = strings.Replace(x.answer, old, by, 1) }
}

// Each exchange differs from a right one in one thing, which is found.
func TestWhatIsNotInTheContractIsFound(t *testing.T) {
	t.Parallel()
	right := adjustment()
	if err := right.check(); err != nil {
		t.Fatal(err)
	}
	replayed := adjustment(func(x *exchange) { x.headers = append(x.headers, "Idempotent-Replayed", "true") })
	if err := replayed.check(); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]exchange{
		"a status that it does not have":  adjustment(func(x *exchange) { x.status = 202 }),
		"another media type":              adjustment(func(x *exchange) { x.kind = "text/html" }),
		"no JSON":                         adjustment(func(x *exchange) { x.answer = "{" }),
		"a member is missing":             adjustment(replace(`,"actor":"shop"`, "")),
		"a member of another type":        adjustment(replace(`"version":1`, `"version":"1"`)),
		"a fraction":                      adjustment(replace(`"version":1`, `"version":1.5`)),
		"a word that is not in the list":  adjustment(replace(`"receive"`, `"steal"`)),
		"a time that is none":             adjustment(replace(`2026-01-02T`, `2026-01-02 `)),
		"null":                            adjustment(replace(`"kind":"receive"`, `"kind":null`)),
		"a header that is not the const":  adjustment(func(x *exchange) { x.headers = append(x.headers, "Idempotent-Replayed", "yes") }),
		"a const of a body":               {"POST", "/v1/stock/A/adjustments", `{"kind":"receive","delta":1}`, 200, "application/json", `{"dry_run":false,` + adjusted[1:], right.headers},
		"a request that was not allowed":  adjustment(func(x *exchange) { x.body = `{"kind":"receive","delta":1,"colour":"red"}` }),
		"a parameter that is not allowed": adjustment(func(x *exchange) { x.path += "?location=" + strings.Repeat("x", 129) }),
		"a problem of another type":       adjustment(func(x *exchange) { x.status, x.kind, x.answer = 409, "application/problem+json", `{"type":"x"}` }),
		"a row of a stream": {
			"GET", "/v1/stock/export", "", 200, "application/x-ndjson", levels + "\n" + `{"sku":"A"}`, []string{"X-Request-Id", "r"},
		},
	} {
		if err := x.check(); err == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
