package ledger

import "github.com/prometheus/client_golang/prometheus"

// metrics of the ledger; all are counted once a batch, not once a request.
type metrics struct {
	batchSize, batchTime, queueWait, commitTime prometheus.Histogram
	conflicts, duplicates, unknown, shed        prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	seconds := prometheus.ExponentialBuckets(0.0001, 2, 16) // 0.1 ms … 3.3 s
	m := &metrics{
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_ledger_batch_requests", Help: "Requests in a batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		batchTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_ledger_batch_seconds", Help: "Time from taking a batch to answering it, retries included.", Buckets: seconds,
		}),
		queueWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_ledger_queue_wait_seconds", Help: "Time the oldest request of a batch had waited for it.", Buckets: seconds,
		}),
		commitTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_ledger_commit_seconds", Help: "Time to write a batch and make it durable.", Buckets: seconds,
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_ledger_conflicts_total", Help: "Batches that found a row changed since it was read.",
		}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_ledger_duplicates_total", Help: "Batches that a used key or a live order of another writer refused.",
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_ledger_unknown_outcomes_total", Help: "Writes whose answer was lost; each was sent again.",
		}),
		shed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_ledger_shed_total", Help: "Requests refused because too much was waiting.",
		}),
	}
	if r != nil {
		r.MustRegister(m.batchSize, m.batchTime, m.queueWait, m.commitTime, m.conflicts, m.duplicates, m.unknown, m.shed)
	}
	return m
}
