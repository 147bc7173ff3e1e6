package httpapi

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/inventory"
)

// Config is what the API needs besides the service. Zero numbers mean the defaults.
type Config struct {
	Clients *Clients              // who may call
	Log     *slog.Logger          // gets one line a request; nil: none
	Metrics prometheus.Registerer // gets this package's metrics; nil: kept, but shown to nobody

	Deadline     time.Duration // of one request, [DefaultDeadline] when 0
	MaxInFlight  int           // requests under way, [DefaultMaxInFlight] when 0
	MaxPerClient int           // of these, of one client, [DefaultMaxPerClient] when 0
}

const (
	// DefaultDeadline ends a request that waits for the ledger or for room in its queue.
	DefaultDeadline = 5 * time.Second
	// DefaultMaxInFlight bounds the requests under way, so that memory stays bounded when all else is slow:
	// at 256 KiB of body each, half a GiB at the very worst.
	DefaultMaxInFlight = 2048
	// DefaultMaxPerClient leaves room for others when one client sends all it can.
	DefaultMaxPerClient = 1024
)

// API is the HTTP face of the service; it is the handler of the public listener itself.
type API struct {
	stock   *inventory.Service
	clients *Clients
	log     *slog.Logger

	problems  []problem
	mux       *chi.Mux
	unmatched *route // stands for every request that no route takes
	calls     sync.Pool

	deadline     time.Duration
	maxInFlight  int64
	maxPerClient int64

	inFlight atomic.Int64
	draining atomic.Bool
}

// New builds the API of svc. It starts nothing: the caller runs [Clients.Watch] and the servers.
func New(svc *inventory.Service, cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	a := &API{
		stock:        svc,
		clients:      cfg.Clients,
		log:          cfg.Log,
		problems:     problems(),
		deadline:     positive(cfg.Deadline, DefaultDeadline),
		maxInFlight:  int64(positive(cfg.MaxInFlight, DefaultMaxInFlight)),
		maxPerClient: int64(positive(cfg.MaxPerClient, DefaultMaxPerClient)),
	}
	a.calls.New = func() any { return new(call) }
	a.mount(newMetrics(cfg.Metrics, &a.inFlight, a.problems), operations{a})
	return a
}

// positive is n, or what stands for zero.
func positive[N ~int | ~int64](n, otherwise N) N {
	if n > 0 {
		return n
	}
	return otherwise
}

// Drain turns readiness off, so that no new work is sent here. What is under way goes on.
func (a *API) Drain() { a.draining.Store(true) }

// ServeHTTP answers one request of the public listener.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := a.calls.Get().(*call) // the pool holds nothing else
	c.begin(a, w, r)
	defer a.finish(c)
	if tooManyHeaders(r.Header) {
		c.fail(errHeadersTooLarge)
		return
	}
	a.mux.ServeHTTP(c, r)
}

const (
	maxHeaderFields = 100
	maxHeaderBytes  = 16 << 10
)

// tooManyHeaders holds the limits on header fields that a client is told about with a problem document. The
// server's own limit lies above them and answers without one.
func tooManyHeaders(h http.Header) bool {
	fields, size := 0, 0
	for name, values := range h {
		fields += len(values)
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return fields > maxHeaderFields || size > maxHeaderBytes
}
