package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Summary is a run in numbers. Times are in microseconds.
type Summary struct {
	Seconds    float64       `json:"seconds"`
	Requests   int64         `json:"requests"`
	PerSecond  float64       `json:"requests_per_second"`
	Deductions float64       `json:"deductions_per_second"` // orders that took stock
	P50        int64         `json:"p50_us"`
	P99        int64         `json:"p99_us"`
	P999       int64         `json:"p99_9_us"`
	Max        int64         `json:"max_us"`
	Statuses   map[int]int64 `json:"statuses"`
	Replays    int64         `json:"replays"`
	PerProcess []int64       `json:"deductions_by_process"`

	// By the service's own metrics.
	Batch      float64 `json:"mean_batch,omitempty"`
	Commit     float64 `json:"mean_commit_us,omitempty"`
	Conflicts  float64 `json:"conflicts"`
	Duplicates float64 `json:"duplicate_batches"`
	Unknown    float64 `json:"unknown_outcomes"`
	Shed       float64 `json:"shed"`
	GateCalls  float64 `json:"gate_calls"`
	GateCall   float64 `json:"mean_gate_call_us,omitempty"`
	Bypasses   float64 `json:"gate_bypasses"`

	CPU       CPU      `json:"cpu_us_per_request"`
	Flush     int64    `json:"disk_flush_us,omitempty"` // just before
	Elsewhere float64  `json:"cores_busy_elsewhere"`    // with what is not part of this
	Wrong     []string `json:"wrong,omitempty"`
}

// CPU time a request, in microseconds.
type CPU struct {
	Generator float64 `json:"generator"`
	Service   float64 `json:"service"`
	Redis     float64 `json:"redis"`
	Postgres  float64 `json:"postgres"`
}

// Check adds what a verification found to what is wrong with a run, and returns all of it.
func (m *Measured) Check(found error) error {
	if found != nil {
		m.Wrong++
		m.Reasons = append(m.Reasons, found)
	}
	if err := errors.Join(m.Reasons...); err != nil {
		return fmt.Errorf("%d answers or checks are wrong: %w", m.Wrong, err)
	}
	return nil
}

// Summary of a run.
func (m *Measured) Summary() *Summary {
	s := &Summary{
		Seconds: m.Took.Seconds(), Requests: m.Requests, Statuses: m.Statuses, Replays: m.Replays, PerProcess: m.PerTarget,
		PerSecond: float64(m.Requests) / m.Took.Seconds(), Deductions: float64(m.Taken) / m.Took.Seconds(),
		P50: m.Latency.Percentile(50).Microseconds(), P99: m.Latency.Percentile(99).Microseconds(),
		P999: m.Latency.Percentile(99.9).Microseconds(), Max: m.Latency.Max().Microseconds(),
		Batch:      m.mean("holdfast_ledger_batch_requests"),
		Commit:     m.mean("holdfast_ledger_commit_seconds") * 1e6,
		Conflicts:  m.Metrics["holdfast_ledger_conflicts_total"],
		Duplicates: m.Metrics["holdfast_ledger_duplicates_total"],
		Unknown:    m.Metrics["holdfast_ledger_unknown_outcomes_total"],
		Shed:       m.Metrics["holdfast_ledger_shed_total"],
		GateCalls:  m.Metrics["holdfast_gate_call_duration_seconds_count"],
		GateCall:   m.mean("holdfast_gate_call_duration_seconds") * 1e6,
		Bypasses:   m.Metrics["holdfast_gate_bypasses_total"],
	}
	for _, reason := range m.Reasons {
		s.Wrong = append(s.Wrong, reason.Error())
	}
	each := func(used time.Duration) float64 { return float64(used.Microseconds()) / float64(max(m.Requests, 1)) }
	s.Flush = m.Flush.Microseconds()
	s.CPU = CPU{each(m.Cost.Generator), each(m.Cost.Service), each(m.Cost.Redis), each(m.Cost.Postgres)}
	ours := m.Cost.Generator + m.Cost.Service + m.Cost.Redis + m.Cost.Postgres
	s.Elsewhere = max((m.Cost.Machine-ours).Seconds()/m.Took.Seconds(), 0)
	return s
}

// mean of a histogram of the service during the run.
func (m *Measured) mean(name string) float64 {
	if count := m.Metrics[name+"_count"]; count > 0 {
		return m.Metrics[name+"_sum"] / count
	}
	return 0
}

// String is a text for people.
func (s *Summary) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("deductions", "%.0f/s", s.Deductions)
	line("requests", "%.0f/s, %d in %.1f s", s.PerSecond, s.Requests, s.Seconds)
	line("latency", "p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.2f ms", ms(s.P50), ms(s.P99), ms(s.P999), ms(s.Max))
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		statuses = append(statuses, fmt.Sprintf("%d × %d", s.Statuses[status], status))
	}
	line("answers", "%s; %d of them replays", strings.Join(statuses, ", "), s.Replays)
	if len(s.PerProcess) > 1 {
		line("processes", "%v deductions, uneven by %.1f %%", s.PerProcess, unevenness(s.PerProcess)*100)
	}
	if s.Batch > 0 {
		line("ledger", "batches of %.1f requests, written in %.0f µs; %.0f conflicts, %.0f duplicates, %.0f unknown outcomes, %.0f shed",
			s.Batch, s.Commit, s.Conflicts, s.Duplicates, s.Unknown, s.Shed)
	}
	if s.Flush > 0 {
		line("disk", "a flush of 8 KiB took %.2f ms just before", ms(s.Flush))
	}
	if s.GateCalls > 0 {
		line("gate", "%.1f requests a call, %.0f µs; %.0f bypasses", float64(s.Requests)/s.GateCalls, s.GateCall, s.Bypasses)
	}
	if total := s.CPU.total(); total > 0 {
		part := func(name string, used float64) {
			line("cpu", "%6.1f µs a request, %3.0f %%: %s", used, used/total*100, name)
		}
		part("this load generator", s.CPU.Generator)
		part("service", s.CPU.Service)
		part("Redis", s.CPU.Redis)
		part("Postgres", s.CPU.Postgres)
		line("cpu", "%6.1f µs a request together; %.2f cores busy with it, %.2f elsewhere", total, total*s.PerSecond/1e6, s.Elsewhere)
	}
	return b.String()
}

func (c *CPU) total() float64 { return c.Generator + c.Service + c.Redis + c.Postgres }

func ms(us int64) float64 { return float64(us) / 1000 }
