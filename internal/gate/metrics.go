package gate

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of one gate. Labels come from closed sets; every series exists from the start.
type metrics struct {
	verdicts [verdicts]prometheus.Counter
	bypasses [reasons]prometheus.Counter
	failures [failures]prometheus.Counter
	call     prometheus.Histogram
	batch    prometheus.Histogram
	open     prometheus.Gauge
	confirm  prometheus.Histogram
	lost     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, pending func() float64) *metrics {
	factory := promauto.With(reg)
	m := &metrics{
		call: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_gate_call_duration_seconds", Help: "Time of a script call, failed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 13),
		}),
		batch: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_gate_call_requests", Help: "Requests that one script call decides; 0 is a call with news only.",
			Buckets: []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, maxRequests},
		}),
		open: factory.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_gate_breakers_open", Help: "Breakers that are open now: one for a single Redis, one a slot group on Cluster.",
		}),
		confirm: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_gate_confirm_duration_seconds", Help: "Time of asking the ledger about items, failures included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14),
		}),
		lost: factory.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_gate_news_lost_total", Help: "Items whose news were given up because too many waited, or Redis refused them.",
		}),
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_gate_pending_items", Help: "Items with news or dropped tickets that wait for a call.",
	}, pending)
	answers := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_gate_verdicts_total", Help: "Requests by what the gate said.",
	}, []string{"verdict"})
	for v := range verdicts {
		m.verdicts[v] = answers.WithLabelValues(v.String())
	}
	bypasses := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_gate_bypasses_total", Help: "Requests that went to the ledger alone, by reason.",
	}, []string{"reason"})
	for r := NoReason + 1; r < reasons; r++ {
		m.bypasses[r] = bypasses.WithLabelValues(r.String())
	}
	failed := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_gate_call_failures_total", Help: "Script calls that failed, by kind.",
	}, []string{"kind"})
	for f := range failures {
		m.failures[f] = failed.WithLabelValues(f.String())
	}
	return m
}

func (m *metrics) answered(a *Answer) {
	m.verdicts[a.Verdict].Inc()
	if a.Verdict == Bypassed {
		m.bypasses[a.Reason].Inc()
	}
}
