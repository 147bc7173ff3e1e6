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
	Deductions float64       `json:"deductions_per_second"`
	P50        int64         `json:"p50_us"`
	P99        int64         `json:"p99_us"`
	P999       int64         `json:"p99_9_us"`
	Max        int64         `json:"max_us"`
	Statuses   map[int]int64 `json:"statuses"`
	Replays    int64         `json:"replays"`
	PerProcess []int64       `json:"deductions_by_process"`

	Batch      float64 `json:"mean_batch,omitempty"`
	Commit     float64 `json:"mean_commit_us,omitempty"`
	Conflicts  float64 `json:"conflicts"`
	Duplicates float64 `json:"duplicate_batches"`
	Unknown    float64 `json:"unknown_outcomes"`
	Bypasses   float64 `json:"gate_bypasses"`
	GateBatch  float64 `json:"mean_gate_batch,omitempty"`
	GateCall   float64 `json:"mean_gate_call_us,omitempty"`

	CPU   map[string]float64 `json:"cpu_us_per_request"`
	Wrong []string           `json:"wrong,omitempty"`
	wrong int64
}

// Check adds what a verification found to what is wrong with a run, and returns all of it.
func (m *Measured) Check(found error) error {
	if found != nil {
		m.Wrong++
		m.Reasons = append(m.Reasons, found)
	}
	return errors.Join(m.Reasons...)
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
		Bypasses:   m.Metrics["holdfast_gate_bypasses_total"],
		GateBatch:  m.mean("holdfast_gate_call_requests"),
		GateCall:   m.mean("holdfast_gate_call_duration_seconds") * 1e6,
		CPU:        map[string]float64{},
		wrong:      m.Wrong,
	}
	each := func(name string, used time.Duration) {
		if used > 0 && m.Requests > 0 {
			s.CPU[name] = float64(used.Microseconds()) / float64(m.Requests)
		}
	}
	each("generator", m.Cost.Generator)
	each("service", m.Cost.Service)
	each("redis", m.Cost.Redis)
	each("postgres", m.Cost.Postgres)
	for _, reason := range m.Reasons {
		s.Wrong = append(s.Wrong, reason.Error())
	}
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
		statuses = append(statuses, fmt.Sprintf("%d × %d", status, s.Statuses[status]))
	}
	line("answers", "%s; %d replays", strings.Join(statuses, ", "), s.Replays)
	if len(s.PerProcess) > 1 {
		line("processes", "%v deductions", s.PerProcess)
	}
	if s.Batch > 0 {
		line("batches", "%.1f requests, commit %.0f µs; %.0f conflicts, %.0f with duplicates, %.0f unknown outcomes",
			s.Batch, s.Commit, s.Conflicts, s.Duplicates, s.Unknown)
		line("gate", "%.1f requests a call, %.0f µs; %.0f bypasses", s.GateBatch, s.GateCall, s.Bypasses)
	}
	total := 0.0
	for _, used := range s.CPU {
		total += used
	}
	for _, name := range []string{"generator", "service", "redis", "postgres"} {
		if used, ok := s.CPU[name]; ok {
			line("cpu", "%-10s %6.1f µs a request %3.0f %%", name, used, used/total*100)
		}
	}
	if total > 0 {
		line("cpu", "%-10s %6.1f µs a request, %.2f cores busy", "together", total, total*s.PerSecond/1e6)
	}
	if s.wrong > 0 {
		line("WRONG", "%d answers or checks", s.wrong)
	}
	return b.String()
}

func ms(us int64) float64 { return float64(us) / 1000 }
