package bench

import (
	"fmt"
	"strings"
)

// Markdown is the suite's table, with the command that repeats each part. asked are what the project promises for two cores
// of 2025; nothing fails when another machine is slower.
func Markdown(rows []Row) string {
	var b strings.Builder
	b.WriteString("| workload | requests/s | p50 ms | p99 ms | p99.9 ms | batch | µs CPU a request: service, Redis, Postgres, load | result | asked | repeat with |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|---|---|---|\n")
	for _, row := range rows {
		r := row.Run
		batch := "–"
		if r.Batch > 0 {
			batch = fmt.Sprintf("%.0f", r.Batch)
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f | %.2f | %.2f | %s | %.0f, %.0f, %.0f, %.0f | %s | %s | `make bench ARGS='--only %s'` |\n",
			row.What, thousands(r.PerSecond), ms(r.P50), ms(r.P99), ms(r.P999), batch,
			r.CPU.Service, r.CPU.Redis, r.CPU.Postgres, r.CPU.Generator, row.Note, row.Asked, row.Part)
	}
	return b.String()
}

// thousands writes a rate as people read it: 23,100.
func thousands(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
