package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

const take = `{"order_id":"1","lines":[{"sku":"kettle","quantity":1}]}`

// throughProxy gives the world a ledger whose wire can be broken.
func throughProxy(t *testing.T, change ...func(*httpapi.Config)) (*world, *fault.Proxy) {
	t.Helper()
	database, err := url.Parse(sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := fault.NewProxy(database.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	database.Host = proxy.Addr()
	return newWorldOn(t, ledger.Config{URL: database.String(), Patience: 2 * time.Second}, change...), proxy
}

func TestNoLedger(t *testing.T) {
	t.Parallel()
	w, proxy := throughProxy(t)
	w.stockUp(t, "kettle", 10)
	proxy.Cut()
	// The first one finds a connection that breaks under it, and cannot know; the next ones find none.
	w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 503)
	a := w.call(t, shop, "POST", "/v1/deductions", take, key("k")...)
	p := a.problem(t, 503, "ledger-unavailable")
	if p.Outcome != openapi.None || p.Retry != openapi.After || a.header.Get("Retry-After") != "1" {
		t.Errorf("got %s with Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	w.call(t, shop, "GET", "/v1/stock/kettle?location=default", "").problem(t, 503, "ledger-unavailable")
	if strings.Contains(string(a.body), "pgx") || strings.Contains(string(a.body), "127.0.0.1") {
		t.Errorf("the answer shows what is behind: %s", a.body)
	}
	proxy.Restore()
	w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 201)
}

// The batch reaches Postgres, its reply never comes, and neither does anything else until the deadline.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	w, proxy := throughProxy(t)
	w.stockUp(t, "kettle", 11)
	w.call(t, shop, "POST", "/v1/deductions", strings.Replace(take, "1", "0", 1), key("before")...).want(t, 201)
	proxy.DropReplies()
	a := w.call(t, shop, "POST", "/v1/deductions", take, key("k")...)
	p := a.problem(t, 503, "outcome-unknown")
	if p.Outcome != openapi.Unknown || p.Retry != openapi.SameKey || a.header.Get("Retry-After") != "1" {
		t.Errorf("got %s with Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	proxy.Restore()
	w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 201)
	item := decode[openapi.Item](t, w.call(t, shop, "GET", "/v1/stock/kettle?location=default", "").want(t, 200))
	if item.OnHand != 9 {
		t.Errorf("%d on hand, want 9", item.OnHand)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	w, proxy := throughProxy(t, func(c *httpapi.Config) { c.Deadline = 50 * time.Millisecond })
	w.stockUp(t, "kettle", 10)
	proxy.Stall()
	began := time.Now()
	a := w.call(t, shop, "POST", "/v1/deductions", take, key("k")...).want(t, 503)
	if p := decode[openapi.Problem](t, a); p.Outcome == openapi.Unknown && p.Retry != openapi.SameKey {
		t.Errorf("got %s", a.body)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a deadline of 50 ms took %v", took)
	}
	proxy.Restore()
}

// upload is a request whose body is not all there yet.
type upload struct {
	conn net.Conn
	rest string
}

// begin sends a deduction but for its last byte, so that the request stays under way.
func (w *world) begin(t *testing.T, token, order string) *upload {
	t.Helper()
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := `{"order_id":"` + order + `","lines":[{"sku":"kettle","quantity":1}]}`
	_, err = fmt.Fprintf(conn, "POST /v1/deductions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, order, len(body), body[:len(body)-1])
	if err != nil {
		t.Fatal(err)
	}
	return &upload{conn, body[len(body)-1:]}
}

// end sends the rest and returns the status.
func (u *upload) end(t *testing.T) int {
	t.Helper()
	if _, err := io.WriteString(u.conn, u.rest); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(u.conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// underWay waits until so many requests are.
func (w *world) underWay(t *testing.T, n string) {
	t.Helper()
	line := "holdfast_http_requests_in_flight " + n + "\n"
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(w.scrape(t), line); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never %s requests under way", n)
		}
	}
}

func TestRequestsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpapi.Config) { c.MaxInFlight, c.MaxPerClient = 3, 2 })
	w.stockUp(t, "kettle", 10)
	one, two := w.begin(t, shop, "1"), w.begin(t, shop, "2")
	w.underWay(t, "2")

	a := w.call(t, shop, "GET", "/v1/stock", "")
	if p := a.problem(t, 429, "rate-limited"); p.Retry != openapi.After || a.header.Get("Retry-After") != "1" {
		t.Errorf("got %s with Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	w.call(t, other, "GET", "/v1/stock", "").want(t, 200)
	three := w.begin(t, other, "3")
	w.underWay(t, "3")
	a = w.call(t, operator, "GET", "/v1/stock", "")
	if p := a.problem(t, 503, "overloaded"); p.Outcome != openapi.None || p.Retry != openapi.After || a.header.Get("Retry-After") != "1" {
		t.Errorf("got %s with Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	w.call(t, "", "GET", "/openapi.yaml", "").want(t, 200)
	for _, u := range []*upload{one, two, three} {
		if status := u.end(t); status != 201 {
			t.Errorf("status %d of a request that was under way", status)
		}
	}
	w.underWay(t, "0")
	w.call(t, shop, "GET", "/v1/stock", "").want(t, 200)
}

// A client that hangs up leaves nothing behind, and is no fault of the service.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	w, proxy := throughProxy(t)
	w.stockUp(t, "kettle", 10)
	hangUp := func(u *upload) {
		t.Helper()
		w.underWay(t, "1")
		if err := u.conn.Close(); err != nil {
			t.Fatal(err)
		}
		w.underWay(t, "0")
	}
	hangUp(w.begin(t, shop, "half")) // before its body was there

	asked := proxy.OnRequest(func([]byte) bool { return true }, fault.HoldRequest)
	u := w.begin(t, shop, "whole") // while the ledger was at it
	if _, err := io.WriteString(u.conn, u.rest); err != nil {
		t.Fatal(err)
	}
	<-asked
	hangUp(u)
	proxy.Restore()
	w.call(t, shop, "GET", "/v1/stock", "").want(t, 200)
	if log := w.log.String(); strings.Contains(log, `"status":5`) || !strings.Contains(log, `"status":499`) {
		t.Errorf("a client that hung up is not logged as such:\n%s", log)
	}
}

// Who sends slowly is waited for as long as the server says, and then gives his place to others.
func TestSlowClientsAreGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if s := w.server.Config; s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= s.ReadHeaderTimeout || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("a server without limits: %+v", s)
	}
	w.stockUp(t, "kettle", 10)
	hasty := &world{log: w.log, metrics: w.metrics, api: w.api}
	hasty.serve(t, w.api, func(s *http.Server) { s.ReadTimeout = 2 * time.Second })
	u := hasty.begin(t, shop, "1")
	resp, err := http.ReadResponse(bufio.NewReader(u.conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(body), "did not come in time") {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	hasty.underWay(t, "0")
	if _, err := u.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is used on")
	}
	w.call(t, shop, "GET", "/v1/deductions?order_id=1", "").want(t, 200)
}

// A service without inventory cannot but panic.
func TestPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broken := &world{}
	broken.serve(t, httpapi.New(nil, httpapi.Config{
		Clients: w.clients, Log: slog.New(slog.NewJSONHandler(w.log, nil)), Metrics: prometheus.NewRegistry(),
	}))
	a := broken.call(t, shop, "POST", "/v1/deductions", take, key("k")...)
	p := a.problem(t, 500, "internal")
	if p.Outcome != openapi.Unknown || p.Retry != openapi.SameKey || strings.Contains(string(a.body), "nil pointer") {
		t.Errorf("got %s", a.body)
	}
	var line struct {
		Level, Problem, Error string
		RequestID             string `json:"request_id"`
	}
	log := strings.TrimSpace(w.log.String())
	if err := json.Unmarshal([]byte(log[strings.LastIndex(log, "\n")+1:]), &line, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log, shop) {
		t.Errorf("a panic shows a token: %s", log)
	}
	if line.Level != "ERROR" || line.Problem != "internal" || line.RequestID != p.Instance || !strings.Contains(line.Error, "deductions.go") {
		t.Errorf("the log line %s does not tell where the panic was", log)
	}
	broken.call(t, shop, "GET", "/docs", "").want(t, 200)
}
