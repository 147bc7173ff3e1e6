package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// entry is one deduction of a batch, of one unit unless rest says otherwise.
func entry(key, deduction string) string {
	return `{"idempotency_key":` + quote(key) + `,"deduction":` + deduction + `}`
}

func takes(order, sku string, units int) string {
	return fmt.Sprintf(`{"order_id":%s,"lines":[{"sku":%s,"quantity":%d}]}`, quote(order), quote(sku), units)
}

func batchOf(entries ...string) string { return `{"deductions":[` + strings.Join(entries, ",") + `]}` }

func (w *world) batch(t *testing.T, token string, entries ...string) []openapi.BatchResult {
	t.Helper()
	a := w.call(t, token, "POST", "/v1/deductions/batch", batchOf(entries...)).want(t, 200)
	results := decode[openapi.DeductionBatchResult](t, a).Results
	if len(results) != len(entries) {
		t.Fatalf("%d results of %d deductions: %s", len(results), len(entries), a.body)
	}
	return results
}

// TestABatchAnswersEachForItself: in order, with the status and the problem each would have had alone.
func TestABatchAnswersEachForItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 5)
	w.stockUpAt(t, "kettle", "york", 5)
	w.call(t, shop, "POST", operationAt("given up")+"/void", "").problem(t, 422, "invalid-field") // a space is no key
	w.call(t, shop, "POST", operationAt("void")+"/void", "").want(t, 200)
	w.call(t, shop, "POST", "/v1/deductions", takes("before", "kettle", 1), key("before")...).want(t, 201)
	entries := []string{
		entry("a", takes("1", "kettle", 2)),
		entry("a", takes("1", "kettle", 2)),
		entry("a", takes("1", "kettle", 1)),
		entry("b", takes("1", "kettle", 1)),
		entry("c", takes("2", "kettle", 9)),
		entry("d", takes("3", "cup", 1)),
		entry("void", takes("4", "kettle", 1)),
		entry("before", takes("before", "kettle", 1)),
		entry("e f", takes("5", "kettle", 1)),
		entry("g", takes("6", "kettle", 0)),
		`{"deduction":` + takes("7", "kettle", 1) + `}`,
		entry("h", `{"order_id":"8","dry_run":true,"lines":[{"sku":"kettle","quantity":1}]}`),
		entry("i", `{"order_id":"9","lines":[{"sku":"kettle","quantity":1,"line_id":"x"},{"sku":"kettle","quantity":1,"line_id":"x"}]}`),
		entry(`"j"`, `{"order_id":"10","hold_seconds":60,"lines":[{"sku":"kettle","quantity":1},{"sku":"kettle","location":"york","quantity":1}]}`),
	}
	want := []string{
		"201", "201 replayed", "422 idempotency-key-reused", "409 order-already-deducted", "409 insufficient-stock /deductions/4/deduction/lines/0/quantity",
		"422 unknown-item /deductions/5/deduction/lines/0/sku", "409 idempotency-key-voided", "201 replayed",
		"422 invalid-field /deductions/8/idempotency_key", "422 invalid-field /deductions/9/deduction/lines/0/quantity",
		"422 invalid-field /deductions/10/idempotency_key", "422 invalid-field /deductions/11/deduction/dry_run",
		"422 invalid-field /deductions/12/deduction/lines/1/line_id", "201",
	}
	results := w.batch(t, shop, entries...)
	for i, r := range results {
		if got := told(r); got != want[i] {
			t.Errorf("%d: %s, want %s", i, got, want[i])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	if results[0].Deduction.Id != results[1].Deduction.Id || results[13].Deduction.State != openapi.Held || results[13].IdempotencyKey != "j" {
		t.Errorf("got %+v", results)
	}
	item := decode[openapi.Item](t, w.call(t, reader, "GET", "/v1/stock/kettle?location=default", "").want(t, 200))
	if item.OnHand != 2 || item.Held != 1 {
		t.Errorf("got %+v", item)
	}
	// The whole of it again, as after a lost answer.
	for i, r := range w.batch(t, shop, entries...) {
		again := want[i]
		if again == "201" {
			again = "201 replayed"
		}
		if got := told(r); got != again {
			t.Errorf("again %d: %s, want %s", i, got, again)
		}
	}
	// A token for some locations is refused what reaches beyond them, and nothing else.
	mine := w.batch(t, york, entry("y", `{"order_id":"y","lines":[{"sku":"kettle","location":"york","quantity":1}]}`), entry("z", takes("z", "kettle", 1)))
	if told(mine[0]) != "201" || told(mine[1]) != "403 forbidden" {
		t.Errorf("got %+v", mine)
	}
}

// told is a result in a line: its status, and the problem with its first pointer.
func told(r openapi.BatchResult) string {
	s := fmt.Sprint(r.Status)
	if r.Replayed != nil {
		s += " replayed"
	}
	if r.Problem == nil {
		return s
	}
	s += " " + strings.TrimPrefix(r.Problem.Type, "urn:holdfast:problem:")
	switch p := r.Problem; {
	case p.Short != nil:
		s += " " + (*p.Short)[0].Pointer
	case p.Unknown != nil:
		s += " " + (*p.Unknown)[0].Pointer
	case p.Fields != nil && (*p.Fields)[0].Pointer != nil:
		s += " " + *(*p.Fields)[0].Pointer
	}
	return s
}

// TestABatchHasLimits of its own, in deductions, lines and bytes.
func TestABatchHasLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100_000)
	many := make([]string, stock.MaxLines+1)
	for i := range many {
		many[i] = entry(fmt.Sprint(i), takes(fmt.Sprint(i), "kettle", 1))
	}
	w.call(t, shop, "POST", "/v1/deductions/batch", batchOf(many...)).problem(t, 422, "invalid-field")
	for i, r := range w.batch(t, shop, many[:stock.MaxLines]...) {
		if told(r) != "201" {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	w.call(t, shop, "POST", "/v1/deductions/batch", batchOf()).problem(t, 422, "invalid-field")
	w.call(t, shop, "POST", "/v1/deductions/batch", `{"deductions":[{]}`).problem(t, 400, "malformed-request")
	w.call(t, shop, "POST", "/v1/deductions/batch", `{"deductions":[],"else":1}`).problem(t, 422, "invalid-field")

	wide := `{"order_id":"w","lines":[` + strings.Repeat(`{"sku":"kettle","quantity":1},`, stock.MaxLines-1) + `{"sku":"kettle","quantity":1}]}`
	lines := make([]string, stock.MaxBatchLines/stock.MaxLines+1)
	for i := range lines {
		lines[i] = entry(fmt.Sprint("w", i), strings.Replace(wide, `"w"`, fmt.Sprintf(`"w%d"`, i), 1))
	}
	p := w.call(t, shop, "POST", "/v1/deductions/batch", batchOf(lines...)).problem(t, 422, "invalid-field")
	if at := pointers(p); len(at) != 1 || at[0] != "/deductions" {
		t.Errorf("got %v", at)
	}
	large := batchOf(many[0]) + strings.Repeat(" ", 4<<20)
	w.call(t, shop, "POST", "/v1/deductions/batch", large).problem(t, 413, "too-large")
	w.call(t, shop, "POST", "/v1/deductions", takes("x", "kettle", 1)+strings.Repeat(" ", 256<<10), key("x")...).problem(t, 413, "too-large")
	item := decode[openapi.Item](t, w.call(t, reader, "GET", "/v1/stock/kettle?location=default", "").want(t, 200))
	if item.OnHand != 100_000-stock.MaxLines {
		t.Errorf("%d on hand", item.OnHand)
	}
}
