package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// The tokens every world knows.
const (
	shop     = "shop-token"     // may do all a shop does
	other    = "other-token"    // another client with the same scopes
	reader   = "reader-token"   // may read stock only
	york     = "york-token"     // is for the locations york and leeds only
	operator = "operator-token" // admin
)

func tokens() []httpapi.Token {
	all := []httpapi.Scope{httpapi.ScopeStockRead, httpapi.ScopeStockWrite, httpapi.ScopeDeductions}
	return []httpapi.Token{
		{Name: "shop", SHA256: httpapi.HashToken(shop), Scopes: all},
		{Name: "other", SHA256: httpapi.HashToken(other), Scopes: all},
		{Name: "reader", SHA256: httpapi.HashToken(reader), Scopes: []httpapi.Scope{httpapi.ScopeStockRead}},
		{Name: "york", SHA256: httpapi.HashToken(york), Scopes: all, Locations: []stock.Location{"york", "leeds"}},
		{Name: "operator", SHA256: httpapi.HashToken(operator), Scopes: []httpapi.Scope{httpapi.ScopeAdmin}},
	}
}

// world is the API over real Postgres and Redis, behind a real server.
type world struct {
	api     *httpapi.API
	stock   *inventory.Service
	server  *httptest.Server
	log     *logLines
	metrics *prometheus.Registry
	clients *httpapi.Clients
	tokens  string // path of the token file
}

func newWorld(t testing.TB, change ...func(*httpapi.Config)) *world {
	t.Helper()
	return newWorldOn(t, ledger.Config{URL: sandbox.Database(t)}, change...)
}

func newWorldOn(t testing.TB, l ledger.Config, change ...func(*httpapi.Config)) *world {
	t.Helper()
	w := &world{log: new(logLines), metrics: prometheus.NewRegistry(), tokens: filepath.Join(t.TempDir(), "tokens.json")}
	writeTokens(t, w.tokens, tokens())
	redis, err := gate.Dial("redis://" + sandbox.RedisAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := redis.Close(); err != nil {
			t.Error(err)
		}
	})
	w.stock, err = inventory.Open(inventory.Config{
		Ledger: l, Gate: gate.Config{Prefix: sandbox.Prefix(t)}, Redis: redis, Registerer: w.metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.stock.Close)
	if w.clients, err = httpapi.OpenClients(w.tokens); err != nil {
		t.Fatal(err)
	}
	cfg := httpapi.Config{Clients: w.clients, Log: slog.New(slog.NewJSONHandler(w.log, nil)), Metrics: w.metrics}
	for _, c := range change {
		c(&cfg)
	}
	w.api = httpapi.New(w.stock, cfg)
	w.serve(t, w.api)
	return w
}

// serve puts handler behind the server the service has.
func (w *world) serve(t testing.TB, handler http.Handler, change ...func(*http.Server)) {
	t.Helper()
	w.server = httptest.NewUnstartedServer(nil)
	w.server.Config = httpapi.Server("", handler)
	for _, c := range change {
		c(w.server.Config)
	}
	w.server.Start()
	t.Cleanup(w.server.Close)
}

func writeTokens(t testing.TB, path string, tokens []httpapi.Token) {
	t.Helper()
	text, err := json.Marshal(tokens)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// logLines keeps what was logged.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends a request and checks the exchange against the contract. Headers are pairs of name and value; a body
// is sent as JSON unless they say otherwise.
func (w *world) call(t testing.TB, token, method, path, body string, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		switch headers[i+1] {
		case "":
			req.Header.Del(headers[i])
		default:
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	return w.send(t, req, body)
}

func (w *world) send(t testing.TB, req *http.Request, body string) answer {
	t.Helper()
	resp, err := w.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: got}
	checkContract(t, req, body, a)
	return a
}

// want fails the test unless the answer has this status.
func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// decode reads the answer's body, which has to have nothing that the type has not.
func decode[T any](t testing.TB, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// problem fails the test unless the answer is a problem of this type.
func (a answer) problem(t testing.TB, status int, kind string) openapi.Problem {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("status %d, Content-Type %q: %s", a.status, got, a.body)
	}
	p := decode[openapi.Problem](t, a)
	if want := "urn:holdfast:problem:" + kind; a.status != status || p.Type != want {
		t.Fatalf("%d %s, want %d %s: %s", a.status, p.Type, status, want, a.body)
	}
	if int(p.Status) != a.status || p.Instance != a.header.Get("X-Request-Id") || p.Detail == "" || p.Title == "" {
		t.Errorf("the problem does not describe its answer: %s", a.body)
	}
	return p
}

// pointers of the wrong places a problem names.
func pointers(p openapi.Problem) []string {
	var all []string
	if p.Fields != nil {
		for _, f := range *p.Fields {
			switch {
			case f.Pointer != nil:
				all = append(all, *f.Pointer)
			case f.Parameter != nil:
				all = append(all, *f.Parameter)
			}
		}
	}
	return all
}

// stockUp creates an item of the default location with units on hand.
func (w *world) stockUp(t testing.TB, sku string, units stock.Quantity) {
	t.Helper()
	w.stockUpAt(t, sku, stock.DefaultLocation, units)
}

func (w *world) stockUpAt(t testing.TB, sku string, location stock.Location, units stock.Quantity) {
	t.Helper()
	item := stock.Item{SKU: stock.SKU(sku), Location: location}
	ctx := context.Background()
	if _, err := w.stock.Configure(ctx, &stock.ConfigureRequest{Client: "test", Item: item}); err != nil {
		t.Fatal(err)
	}
	if units == 0 {
		return
	}
	_, err := w.stock.Adjust(ctx, &stock.AdjustRequest{
		Keyed: stock.Keyed{Client: "test", Key: "stock " + item.String()}, Item: item, Kind: stock.Receive, Delta: units,
	})
	if err != nil {
		t.Fatal(err)
	}
}
