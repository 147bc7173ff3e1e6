// Package contract checks exchanges with the service against openapi.yaml, for tests of any package. It settles whether an answer is one that the
// contract has for its request. It refuses to be linked into the service, which has its own, stricter reader.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// Load reads the contract, once. Whether it is a valid one is not looked at: that takes seconds, and is for one test.
var Load = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(openapi.YAML) })

// unwalkable are the keywords of JSON Schema 2020-12 that [walkable] could not do without compiling.
var unwalkable = []string{
	"$defs", "contains", "contentSchema", "dependentRequired", "dependentSchemas", "else", "if", "patternProperties", "prefixItems",
	"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
}

// walkable is the contract as exchanges are compared with it. Of a 3.1 document kin-openapi compiles a validator anew for each value it looks
// at, which costs more than the rest of a test; of a 3.0 one it walks the schema, and knows all keywords that the contract has but const. So it
// is called 3.0, with an enum of one value for each const.
var walkable = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := Load()
	if err != nil {
		return nil, err
	}
	text, err := doc.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	if err := withoutConst(tree); err != nil {
		return nil, err
	}
	tree["openapi"] = "3.0.3"
	if text, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(text)
})

func withoutConst(node any) error {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if err := withoutConst(child); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, child := range node {
			if slices.Contains(unwalkable, key) {
				return fmt.Errorf("the contract has the keyword %s, which nothing here checks", key)
			}
			if err := withoutConst(child); err != nil {
				return err
			}
		}
		if value, ok := node["const"]; ok {
			node["enum"] = []any{value}
			delete(node, "const")
		}
	}
	return nil
}

// Answer is what a request got.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Check reports what of an exchange the contract does not have: an answer that is not among the operation's, or a request that was accepted
// although it is not allowed. Paths that are no operation's, such as those of the admin listener, are let through.
func Check(request *http.Request, body []byte, answer Answer) error {
	doc, err := walkable()
	if err != nil {
		return err
	}
	route, params := find(doc, request)
	if route == nil {
		return nil
	}
	request = request.Clone(context.Background())
	request.Body = io.NopCloser(bytes.NewReader(body))
	in := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true,
		},
	}
	in.Options.ExcludeRequestBody = strings.HasSuffix(request.URL.Path, "/import") // rows are no document
	// A batch is answered 200 whatever is in it: what the contract does not allow is one deduction's problem.
	if answer.Status < http.StatusMultipleChoices && route.Operation.OperationID != "createDeductions" {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return fmt.Errorf("%s %s %s was accepted, but the contract does not allow it: %w", request.Method, request.URL, body, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: answer.Status, Header: answer.Header, Options: in.Options,
	}
	if kind := answer.Header.Get("Content-Type"); kind == "application/x-ndjson" || strings.HasPrefix(kind, "text/csv") {
		out.Options = &openapi3filter.Options{ExcludeResponseBody: true, IncludeResponseStatus: true}
		if err := checkLines(route.Operation.Responses.Status(answer.Status), kind, answer.Body); err != nil {
			return err
		}
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(answer.Body)); err != nil {
		return fmt.Errorf("%s %s answered %d with what is not in the contract: %w\n%s", request.Method, request.URL, answer.Status, err, answer.Body)
	}
	return nil
}

// checkLines checks an answer that is a document a line; CSV is text to the contract.
func checkLines(response *openapi3.ResponseRef, kind string, body []byte) error {
	if response == nil || response.Value.Content.Get(kind) == nil {
		return fmt.Errorf("the contract has no answer of type %s", kind)
	}
	schema := response.Value.Content.Get(kind).Schema.Value
	if schema.Type.Is("string") {
		return nil
	}
	for line := range bytes.Lines(body) {
		var v any
		err := json.Unmarshal(line, &v)
		if err == nil {
			err = schema.VisitJSON(v)
		}
		if err != nil {
			return fmt.Errorf("a line that is not in the contract: %w\n%s", err, line)
		}
	}
	return nil
}

// find the operation by the escaped path: a SKU may have slashes and braces.
func find(doc *openapi3.T, request *http.Request) (*routers.Route, map[string]string) {
	path := strings.Split(request.URL.EscapedPath(), "/")
	var found *routers.Route
	var params map[string]string
	for pattern, item := range doc.Paths.Map() {
		op := item.GetOperation(request.Method)
		if p := match(strings.Split(pattern, "/"), path); op != nil && p != nil && (found == nil || len(p) < len(params)) {
			found = &routers.Route{Spec: doc, Path: pattern, PathItem: item, Method: request.Method, Operation: op}
			params = p
		}
	}
	return found, params
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

// often is how many exchanges of one operation and status a [Checker] looks at. Each costs more than the service's part in it, and a test
// with load makes thousands alike.
const often = 5

// Checker looks at the exchanges of a test's clients. Its zero value is ready.
type Checker struct {
	mu       sync.Mutex
	seen     map[string]int // exchanges by operation and status; guarded by mu
	offences []error        // guarded by mu
}

// Offences are what the contract does not have of the exchanges so far.
func (c *Checker) Offences() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.offences)
}

func (c *Checker) report(offence error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offences = append(c.offences, offence)
}

// Transport makes exchanges by base and has the first of each kind checked.
func (c *Checker) Transport(base http.RoundTripper) http.RoundTripper { return &transport{c, base} }

// enough reports whether exchanges of this kind were looked at often.
func (c *Checker) enough(request *http.Request, status int) bool {
	doc, err := walkable()
	if err != nil {
		c.report(err)
		return true
	}
	route, _ := find(doc, request)
	if route == nil {
		return true
	}
	kind := fmt.Sprint(route.Operation.OperationID, status)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[string]int)
	}
	c.seen[kind]++
	return c.seen[kind] > often
}

type transport struct {
	checker *Checker
	base    http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(request)
	if err != nil || t.checker.enough(request, response.StatusCode) {
		return response, err
	}
	var sent []byte
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err == nil {
			sent, err = io.ReadAll(body)
		}
		if err != nil {
			return nil, err
		}
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err := Check(request, sent, Answer{response.StatusCode, response.Header, body}); err != nil {
		t.checker.report(err)
	}
	return response, nil
}
