package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// metrics of the runs of this process, by job.
type metrics struct {
	runs, rows, lockErrors *prometheus.CounterVec
	duration               *prometheus.HistogramVec
	lastDone               *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	job := []string{"job"}
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_job_runs_total", Help: "Runs of this instance, by how they ended; abandoned ones are taken over.",
		}, []string{"job", "outcome"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_job_rows_total", Help: "Rows that runs of this instance changed.",
		}, job),
		lockErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_job_lock_errors_total", Help: "Times that the lock of a job could not be asked for. Only jobs wait for it.",
		}, job),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_job_run_seconds", Help: "Time that runs of this instance took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms … 4 min
		}, job),
		lastDone: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_job_last_done_timestamp_seconds", Help: "When this instance last did a run to its end; 0 if never.",
		}, job),
	}
	if r != nil {
		r.MustRegister(m.runs, m.rows, m.lockErrors, m.duration, m.lastDone)
	}
	return m
}

// announce makes every series of a job visible before it has run.
func (m *metrics) announce(job string) {
	for _, outcome := range []string{string(stock.RunDone), string(stock.RunFailed), "abandoned"} {
		m.runs.WithLabelValues(job, outcome)
	}
	m.rows.WithLabelValues(job)
	m.lockErrors.WithLabelValues(job)
	m.lastDone.WithLabelValues(job)
}

func (m *metrics) observe(job string, e stock.Ended, took time.Duration) {
	m.runs.WithLabelValues(job, string(e.Outcome)).Inc()
	m.rows.WithLabelValues(job).Add(float64(e.Rows))
	m.duration.WithLabelValues(job).Observe(took.Seconds())
	if e.Outcome == stock.RunDone {
		m.lastDone.WithLabelValues(job).SetToCurrentTime()
	}
}
