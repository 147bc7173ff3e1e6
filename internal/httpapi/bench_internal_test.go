package httpapi

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// canned answers deductions with what was made before, or with an error, instead of asking inventory.
type canned struct {
	operations
	out *stock.Outcome
	err error
}

func (o canned) CreateDeduction(w http.ResponseWriter, _ *http.Request, p openapi.CreateDeductionParams) {
	c := callOf(w)
	c.run(func() error {
		if _, err := c.deductRequest(p.IdempotencyKey); err != nil {
			return err
		}
		if o.err != nil {
			return o.err
		}
		c.deducted(o.out)
		return nil
	})
}

// nobody reads an answer.
type nobody struct{ header http.Header }

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) WriteHeader(int)             {}
func (n *nobody) Write(b []byte) (int, error) { return len(b), nil }

// benchmarkLayer measures all that this package does for a deduction, chi included, without inventory and the network:
// admission, routing, reading, encoding, the log line and the metrics.
func benchmarkLayer(b *testing.B, serve func(operations) openapi.ServerInterface) {
	const token = "a-token-as-long-as-they-are-0123456789"
	path := filepath.Join(b.TempDir(), "tokens.json")
	text := `[{"name":"shop","sha256":"` + HashToken(token) + `","scopes":["deductions:write"]}]`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	clients, err := OpenClients(path)
	if err != nil {
		b.Fatal(err)
	}
	a := New(nil, Config{
		Clients: clients, Log: slog.New(slog.NewJSONHandler(NewLogBuffer(io.Discard), nil)), Metrics: prometheus.NewRegistry(),
	})
	a.mount(newMetrics(prometheus.NewRegistry(), &a.inFlight, a.problems), serve(operations{a}))

	body := strings.NewReader("")
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/deductions", io.NopCloser(body))
	if err != nil {
		b.Fatal(err)
	}
	const order = `{"order_id":"order-0123456789","lines":[{"sku":"85123A","quantity":6}]}`
	req.ContentLength = int64(len(order))
	req.Header = http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Content-Length": {"70"},
		"Idempotency-Key": {"0123456789abcdef"}, "User-Agent": {"bench"}, "Accept-Encoding": {"gzip"},
	}
	w := &nobody{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(order)
		clear(w.header)
		a.ServeHTTP(w, req)
	}
}

func BenchmarkLayerTaken(b *testing.B) {
	item := stock.Item{SKU: "85123A", Location: "default"}
	now := time.Now()
	out := &stock.Outcome{
		Deduction: stock.Deduction{
			ID: uuid.New(), Client: "shop", OrderID: "order-0123456789", State: stock.Committed, Revision: 1, CreatedAt: now, UpdatedAt: now,
			Lines: []stock.Line{{No: 1, Item: item, Quantity: 6, Committed: 6}},
		},
		Levels: []stock.Levels{{Item: item, OnHand: 123456, Version: 7890}},
	}
	benchmarkLayer(b, func(o operations) openapi.ServerInterface { return canned{operations: o, out: out} })
}

func BenchmarkLayerSoldOut(b *testing.B) {
	err := &stock.ShortError{Lines: []stock.ShortLine{{Item: stock.Item{SKU: "85123A", Location: "default"}, Requested: 6, Version: 7890}}}
	benchmarkLayer(b, func(o operations) openapi.ServerInterface { return canned{operations: o, err: err} })
}
