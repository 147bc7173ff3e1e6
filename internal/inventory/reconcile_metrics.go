package inventory

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// reconcileMetrics are of the continuous check.
type reconcileMetrics struct {
	items, movements, customers, keys, failed prometheus.Counter
	findings, repaired                        map[stock.Rule]prometheus.Counter
	gateFailed                                prometheus.Counter
}

func newReconcileMetrics(r prometheus.Registerer) *reconcileMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_reconcile_" + name, Help: help})
	}
	m := &reconcileMetrics{
		items:      counter("items_total", "Items compared with their movements, their holds and the gate."),
		movements:  counter("movements_total", "Movements added up."),
		customers:  counter("customers_total", "Counters of what a customer has of an item that were compared with his deductions."),
		keys:       counter("keys_total", "Idempotency keys looked up."),
		failed:     counter("failed_total", "Steps of the check that could not be finished."),
		gateFailed: counter("gate_failed_total", "Steps of the check that could not ask the gate."),
		findings:   make(map[stock.Rule]prometheus.Counter), repaired: make(map[stock.Rule]prometheus.Counter),
	}
	found := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_reconcile_findings_total", Help: "Rules found broken, each time they were.",
	}, []string{"rule"})
	repaired := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_reconcile_repaired_total", Help: "Items the gate was made to forget because it disagreed with the ledger.",
	}, []string{"rule"})
	for _, rule := range stock.ContinuousRules() {
		m.findings[rule] = found.WithLabelValues(string(rule))
		if rule.InGate() {
			m.repaired[rule] = repaired.WithLabelValues(string(rule))
		}
	}
	if r != nil {
		r.MustRegister(m.items, m.movements, m.customers, m.keys, m.failed, m.gateFailed, found, repaired)
	}
	return m
}

func (m *reconcileMetrics) observe(v *Verdict, err error) {
	m.items.Add(float64(v.Checked.Items))
	m.movements.Add(float64(v.Checked.Movements))
	m.customers.Add(float64(v.Checked.Customers))
	m.keys.Add(float64(v.Checked.Keys))
	if err != nil {
		m.failed.Inc()
	}
	if v.Gate != nil {
		m.gateFailed.Inc()
	}
	for i := range v.Findings {
		m.findings[v.Findings[i].Rule].Inc()
		if v.Findings[i].Repaired {
			m.repaired[v.Findings[i].Rule].Inc()
		}
	}
}
