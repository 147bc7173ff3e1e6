package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// recorder keeps the status of an answer, and its body if it is a refusal.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header    { return r.header }
func (r *recorder) WriteHeader(status int) { r.status = status }
func (r *recorder) Write(b []byte) (int, error) {
	if r.status >= 400 {
		r.body.Write(b)
	}
	return len(b), nil
}

// BenchmarkDeduct is a deduction of one hot item from 64 goroutines: everything but the network between client and service.
func BenchmarkDeduct(b *testing.B) {
	w := newWorld(b, func(c *httpapi.Config) { c.Log = slog.New(slog.NewJSONHandler(httpapi.NewLogBuffer(io.Discard), nil)) })
	w.stockUp(b, "kettle", stock.MaxOnHand)
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			order := strconv.FormatInt(n.Add(1), 10)
			body := `{"order_id":"` + order + `","lines":[{"sku":"kettle","quantity":1}]}`
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/deductions", io.NopCloser(strings.NewReader(body)))
			if err != nil {
				b.Error(err)
				return
			}
			req.ContentLength = int64(len(body))
			req.Header = http.Header{"Authorization": {"Bearer " + shop}, "Content-Type": {"application/json"}, "Idempotency-Key": {order}}
			rec := &recorder{header: http.Header{}}
			if w.api.ServeHTTP(rec, req); rec.status != http.StatusCreated {
				b.Errorf("%d: %s", rec.status, &rec.body)
				return
			}
		}
	})
}
