package httpapi

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what this package tells Prometheus. Labels come from closed sets: the routes, the classes of
// statuses, the types of problems.
type metrics struct {
	duration *prometheus.HistogramVec
	problems *prometheus.CounterVec
	names    []string // of problems
}

func newMetrics(to prometheus.Registerer, inFlight *atomic.Int64, problems []problem) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_http_request_duration_seconds",
			Help:    "Time from the first byte of the headers read to the answer written, by route and class of status.",
			Buckets: []float64{.0005, .001, .002, .003, .005, .0075, .01, .02, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"route", "code"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_http_problems_total",
			Help: "Requests answered with a problem, by its type.",
		}, []string{"type"}),
	}
	for i := range problems {
		m.names = append(m.names, problems[i].name)
	}
	to.MustRegister(m.duration, m.problems, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_http_requests_in_flight",
		Help: "Requests under way, of all clients.",
	}, func() float64 { return float64(inFlight.Load()) }))
	return m
}

// observer is the metrics of one route, looked up once at the start instead of at each request.
type observer struct {
	byClass  [6]prometheus.Observer        // by the first digit of the status
	problems map[string]prometheus.Counter // by type
}

func (m *metrics) observer(route string) observer {
	o := observer{problems: make(map[string]prometheus.Counter, len(m.names))}
	for class, code := range []string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		o.byClass[class] = m.duration.WithLabelValues(route, code)
	}
	for _, name := range m.names {
		o.problems[name] = m.problems.WithLabelValues(name)
	}
	return o
}

// observe counts an answer; kind is the problem's type, or empty.
func (o *observer) observe(status int, took time.Duration, kind string) {
	class := status / 100
	if class < 0 || class >= len(o.byClass) {
		class = 0
	}
	o.byClass[class].Observe(took.Seconds())
	if kind != "" {
		o.problems[kind].Inc()
	}
}
