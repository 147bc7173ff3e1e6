package vm

import (
	"sync/atomic"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
)

// maxWarnings bounds the lines about failed requests: under overload there is one a request.
const maxWarnings = 20

// Warnings reports failed requests, the first of them in full.
type Warnings struct{ seen atomic.Int64 }

func (w *Warnings) failed(log *Log, request *httpclient.Request, err error) {
	switch n := w.seen.Add(1); {
	case n <= maxWarnings:
		log.Printf("WARN", "request failed: %s %s: %s", request.Method, request.URL, err)
	case n == maxWarnings+1:
		log.Print("WARN", "request failed: more of them are not listed; see http_req_failed")
	}
}
