package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout bounds one look whether the ledger answers.
const readyTimeout = time.Second

// Admin is the handler of the admin listener, which is not for the world: it asks for no token.
//
//	/livez    200 as long as the process answers at all
//	/readyz   200 when work can be sent here, 503 while draining or without a ledger
//	/metrics  what was registered with metrics
//	/debug/pprof/   without the command line, which may have a password in it
func (a *API) Admin(metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	if a.draining.Load() {
		say(w, http.StatusServiceUnavailable, "draining")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := a.stock.Ready(ctx); err != nil {
		a.log.Warn("not ready", slog.Any("error", err))
		say(w, http.StatusServiceUnavailable, "the ledger is out of reach")
		return
	}
	say(w, http.StatusOK, "ready")
}

// say answers a probe. That nobody reads it is no concern.
func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
