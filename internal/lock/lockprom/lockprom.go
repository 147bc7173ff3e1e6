// Package lockprom counts what happens to locks, for Prometheus. Its labels are the back end and the kind of event,
// never a key or an owner: those are in the log.
package lockprom

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// metrics are the series of one registry.
type metrics struct {
	events                   *prometheus.CounterVec
	wait, hold, margin, late *prometheus.HistogramVec
}

// New registers the metrics and returns the observer that feeds them.
func New(registry prometheus.Registerer) (lock.Observer, error) {
	m := metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_lock_events_total",
			Help: "What happened to locks: acquired, contended, refused, failed, renewed, renew_failed, lost, late, released.",
		}, []string{"backend", "event"}),
		wait:   histogram("holdfast_lock_wait_seconds", "Time from asking for a lock to holding it."),
		hold:   histogram("holdfast_lock_hold_seconds", "Time a lock was held until it was released or lost."),
		margin: histogram("holdfast_lock_renewal_margin_seconds", "What was left of a lease when it was renewed."),
		late:   histogram("holdfast_lock_late_seconds", "Time that work went on after its lease was lost."),
	}
	for _, c := range []prometheus.Collector{m.events, m.wait, m.hold, m.margin, m.late} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register lock metrics: %w", err)
		}
	}
	return m.observe, nil
}

func histogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets: prometheus.ExponentialBucketsRange(0.0005, 300, 20),
	}, []string{"backend"})
}

func (m metrics) observe(e lock.Event) {
	m.events.WithLabelValues(e.Backend, string(e.Kind)).Inc()
	switch e.Kind {
	case lock.Acquired:
		m.wait.WithLabelValues(e.Backend).Observe(e.Wait.Seconds())
	case lock.Renewed:
		m.margin.WithLabelValues(e.Backend).Observe(e.Margin.Seconds())
	case lock.Released, lock.Lost:
		m.hold.WithLabelValues(e.Backend).Observe(e.Hold.Seconds())
	case lock.Late:
		m.late.WithLabelValues(e.Backend).Observe(e.Late.Seconds())
	}
}
