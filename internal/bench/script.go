package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// scriptReport is what a load script leaves behind, see k6/lib/summary.js.
type scriptReport struct {
	Script  string                  `json:"script"`
	Metrics map[string]scriptMetric `json:"metrics"`
}

type scriptMetric struct {
	Values     map[string]float64 `json:"values"`
	Thresholds map[string]struct {
		OK bool `json:"ok"`
	} `json:"thresholds"`
}

// ScriptHeader begins the table that [ScriptRow] has the rows of.
const ScriptHeader = "| script | what came of it | requests/s | p50 ms | p95 ms | p99 ms | p99.9 ms | CPU: load generator, service, Redis, Postgres |\n" +
	"|---|---|--:|--:|--:|--:|--:|---|\n"

// ScriptRow is a row about a run of a load script: its report, the times of its orders in it, and who used how much CPU.
func ScriptRow(report []byte, cost Cost) (string, error) {
	var r scriptReport
	if err := json.Unmarshal(report, &r); err != nil {
		return "", fmt.Errorf("report of a load script: %w", err)
	}
	orders := r.Metrics["http_req_duration{name:POST /v1/deductions}"].Values
	if orders == nil {
		return "", fmt.Errorf("the report of the load script %q has no times of orders", r.Script)
	}
	return fmt.Sprintf("| %s | %s | %s | %.2f | %.2f | %.2f | %.2f | %s |\n", r.Script, r.outcome(), thousands(r.Metrics["http_reqs"].Values["rate"]),
		orders["med"], orders["p(95)"], orders["p(99)"], orders["p(99.9)"], cost.split()), nil
}

// outcome tells the counts that matter, after the thresholds that do not hold.
func (r *scriptReport) outcome() string {
	var parts, failed []string
	for _, name := range []string{"granted", "refused", "replayed", "shed", "dropped_iterations"} {
		if n := r.Metrics[name].Values["count"]; n > 0 {
			parts = append(parts, thousands(n)+" "+strings.TrimSuffix(name, "_iterations"))
		}
	}
	for name, metric := range r.Metrics {
		for condition, threshold := range metric.Thresholds {
			if !threshold.OK {
				failed = append(failed, name+" "+condition)
			}
		}
	}
	if len(failed) > 0 {
		slices.Sort(failed)
		parts = append([]string{"**failed:** " + strings.Join(failed, ", ")}, parts...)
	}
	return strings.Join(parts, ", ")
}

// split tells the seconds that all used together, and the share of each.
func (c Cost) split() string {
	total := c.Generator + c.Service + c.Redis + c.Postgres
	if total == 0 {
		return "not known here"
	}
	var shares []string
	for _, by := range c.consumers() {
		shares = append(shares, fmt.Sprintf("%.0f %%", by.used.Seconds()/total.Seconds()*100))
	}
	return fmt.Sprintf("%.0f s: %s", total.Seconds(), strings.Join(shares, ", "))
}
