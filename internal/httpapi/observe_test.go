package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
)

// scrape is what the admin listener tells Prometheus.
func (w *world) scrape(t testing.TB) string {
	t.Helper()
	return w.admin(t, "/metrics").body
}

type probe struct {
	status int
	body   string
}

func (w *world) admin(t testing.TB, path string) probe {
	t.Helper()
	rec := httptest.NewRecorder()
	w.api.Admin(w.metrics).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return probe{rec.Code, rec.Body.String()}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	w, proxy := throughProxy(t)
	for path, want := range map[string]probe{"/livez": {200, "alive\n"}, "/readyz": {200, "ready\n"}} {
		if got := w.admin(t, path); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	proxy.Cut()
	if got, want := w.admin(t, "/readyz"), (probe{503, "the ledger is out of reach\n"}); got != want {
		t.Errorf("without a ledger: %+v, want %+v", got, want)
	}
	proxy.Restore()
	w.api.Drain()
	if got, want := w.admin(t, "/readyz"), (probe{503, "draining\n"}); got != want {
		t.Errorf("draining: %+v, want %+v", got, want)
	}
	if got := w.admin(t, "/livez"); got.status != 200 {
		t.Errorf("not alive while draining: %+v", got)
	}
	w.call(t, shop, "GET", "/v1/stock", "").want(t, 200) // what comes all the same is served
	if got := w.admin(t, "/debug/pprof/heap"); got.status != 200 {
		t.Errorf("no profile: %+v", got)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/debug/pprof/"} {
		w.call(t, operator, "GET", path, "").problem(t, 404, "not-found")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1)
	w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 201)
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"2","lines":[{"sku":"kettle","quantity":1}]}`, key("l")...).want(t, 409)
	w.call(t, shop, "GET", "/v1/stock/kettle", "").want(t, 200)
	w.call(t, shop, "GET", "/nothing/kettle", "").want(t, 404)
	got := w.scrape(t)
	for _, line := range []string{
		`holdfast_http_request_duration_seconds_count{code="2xx",route="POST /v1/deductions"} 1`,
		`holdfast_http_request_duration_seconds_count{code="4xx",route="POST /v1/deductions"} 1`,
		`holdfast_http_request_duration_seconds_count{code="2xx",route="GET /v1/stock/{sku}"} 1`,
		`holdfast_http_request_duration_seconds_count{code="4xx",route="none"} 1`,
		`holdfast_http_problems_total{type="insufficient-stock"} 1`,
		`holdfast_http_problems_total{type="not-found"} 1`,
		`holdfast_http_requests_in_flight 0`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
	if strings.Contains(got, "kettle") {
		t.Error("a SKU became a label")
	}
}

func TestOneLogLineARequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1)
	w.call(t, shop, "POST", "/v1/deductions", take, "Idempotency-Key", "secret-key", "X-Request-Id", "my.request-1").want(t, 201)
	w.call(t, reader, "POST", "/v1/deductions", take, key("k")...).want(t, 403)
	w.call(t, "wrong-token", "GET", "/v1/stock/kettle", "").want(t, 401)
	w.call(t, shop, "GET", "/docs", "").want(t, 200)
	type line struct {
		Msg, Level, Route, Client, Problem string
		Status                             int
		RequestID                          string `json:"request_id"`
		Duration                           *int   `json:"duration_us"`
	}
	want := []line{
		{Msg: "request", Level: "INFO", Route: "POST /v1/deductions", Client: "shop", Status: 201},
		{Msg: "request", Level: "INFO", Route: "POST /v1/deductions", Client: "reader", Status: 403, Problem: "forbidden"},
		{Msg: "request", Level: "INFO", Route: "GET /v1/stock/{sku}", Status: 401, Problem: "unauthenticated"},
		{Msg: "request", Level: "INFO", Route: "GET /docs", Status: 200},
	}
	w.server.Close() // the line is written after the answer: wait for both
	text := w.log.String()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d log lines, want %d:\n%s", len(lines), len(want), text)
	}
	ids := map[string]bool{}
	for i, l := range lines {
		var got line
		if err := json.Unmarshal([]byte(l), &got, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		ids[got.RequestID] = true
		if got.Duration == nil || got.RequestID == "" {
			t.Errorf("log line %s", l)
		}
		if got.RequestID, got.Duration = "", nil; got != want[i] {
			t.Errorf("log line %s, want %+v", l, want[i])
		}
	}
	if len(ids) != len(lines) || !ids["my.request-1"] {
		t.Errorf("request ids %v", ids)
	}
	for _, secret := range []string{shop, "wrong-token", "secret-key", "kettle"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for given, kept := range map[string]bool{
		"a": true, "A-b_c.9": true, strings.Repeat("x", 64): true,
		strings.Repeat("x", 65): false, "a b": false, "ä": false, "a/b": false, `a"`: false,
	} {
		got := w.call(t, shop, "GET", "/v1/stock", "", "X-Request-Id", given).header.Get("X-Request-Id")
		if (got == given) != kept || len(got) == 0 {
			t.Errorf("%q became %q", given, got)
		}
	}
	got := w.call(t, shop, "GET", "/v1/stock", "", "X-Request-Id", "a", "X-Request-Id", "b").header.Values("X-Request-Id")
	if len(got) != 1 || len(got[0]) != 24 {
		t.Errorf("two ids became %v", got)
	}
}

// refusing fails its first write.
type refusing struct {
	strings.Builder
	fail bool
}

func (r *refusing) Write(b []byte) (int, error) {
	if r.fail {
		return 0, io.ErrClosedPipe
	}
	return r.Builder.Write(b)
}

func TestLogBuffer(t *testing.T) {
	t.Parallel()
	out := new(refusing)
	buf := httpapi.NewLogBuffer(out)
	line := []byte(strings.Repeat("x", 99) + "\n")
	for range 2 * 64 << 10 / len(line) {
		if _, err := buf.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if n := out.Len(); n == 0 || n == 2*64<<10 {
		t.Errorf("%d bytes written before a flush", n)
	}
	if err := buf.Flush(); err != nil {
		t.Fatal(err)
	}
	if lines := slices.Collect(strings.Lines(out.String())); len(lines) != 2*64<<10/len(line) {
		t.Errorf("%d lines came out", len(lines))
	}
	out.fail = true
	_, _ = buf.Write(line)
	if err := buf.Flush(); err == nil {
		t.Error("a lost line is no error")
	}
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, kind := range map[string]string{
		"/docs": "text/html; charset=utf-8", "/docs/page.js": "text/javascript; charset=utf-8", "/docs/page.css": "text/css; charset=utf-8",
		"/docs/swagger-ui.css": "text/css; charset=utf-8", "/docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
		"/docs/favicon-32x32.png": "image/png",
	} {
		a := w.call(t, "", "GET", path, "").want(t, 200)
		plain := w.call(t, "", "GET", path, "", "Accept-Encoding", "identity").want(t, 200)
		if a.header.Get("Content-Type") != kind || len(a.body) == 0 || string(a.body) != string(plain.body) || plain.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v, %d bytes, %d without compression", path, a.header, len(a.body), len(plain.body))
		}
		policy := a.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "http") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
	for _, path := range []string{"/docs/embed.go", "/docs/swagger-ui.css.gz", "/docs/..%2fdocs.go", "/docs/x.html"} {
		w.call(t, "", "GET", path, "").problem(t, 404, "not-found")
	}
}
