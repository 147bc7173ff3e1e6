package summary

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

// Text is the summary that is printed when the script has no handleSummary().
func Text(in Input) string {
	var b strings.Builder
	thresholds(&b, in)
	checks(&b, in.Outline.Root())
	for _, section := range []struct {
		title string
		holds func(name string) bool
	}{
		{"CUSTOM", func(name string) bool { return sectionOf(name) == "" }},
		{"HTTP", func(name string) bool { return sectionOf(name) == "http" }},
		{"EXECUTION", func(name string) bool { return sectionOf(name) == "execution" }},
		{"NETWORK", func(name string) bool { return sectionOf(name) == "network" }},
	} {
		metrics(&b, in, section.title, section.holds)
	}
	return b.String()
}

func sectionOf(name string) string {
	name, _, _ = strings.Cut(name, "{")
	switch {
	case strings.HasPrefix(name, "http_req"):
		return "http"
	case strings.HasPrefix(name, "data_"):
		return "network"
	}
	switch name {
	case "iterations", "iteration_duration", "dropped_iterations", "vus", "vus_max", "group_duration", "checks":
		return "execution"
	}
	return ""
}

func thresholds(b *strings.Builder, in Input) {
	title := "\n  THRESHOLDS\n"
	for _, m := range in.Registry.All() {
		sink := in.Registry.Read(m)
		for i, t := range m.Thresholds {
			if i == 0 {
				fmt.Fprintf(b, "%s\n    %s\n", title, m.Name)
				title = ""
			}
			v := t.Judge(m.Kind, sink, in.Elapsed)
			value := strconv.FormatFloat(v.Value, 'g', 6, 64)
			if !v.Measured {
				value += " (no values)"
			}
			fmt.Fprintf(b, "    %s '%s' got %s\n", mark(v.OK), t.Source, value)
		}
	}
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

func checks(b *strings.Builder, g *metric.Group) {
	all := g.Checks()
	if len(all) > 0 {
		fmt.Fprintf(b, "\n  CHECKS %s\n\n", strings.TrimPrefix(g.Path, metric.Separator))
	}
	for _, c := range all {
		passes, fails := c.Passes.Load(), c.Fails.Load()
		fmt.Fprintf(b, "    %s %s", mark(fails == 0), c.Name)
		if fails > 0 {
			fmt.Fprintf(b, "  (%d of %d failed)", fails, passes+fails)
		}
		b.WriteByte('\n')
	}
	for _, inner := range g.Groups() {
		checks(b, inner)
	}
}

func metrics(b *strings.Builder, in Input, title string, holds func(string) bool) {
	first := true
	for _, m := range in.Registry.All() {
		sink := in.Registry.Read(m)
		if !holds(m.Name) || sink.Count == 0 {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n  %s\n\n", title)
			first = false
		}
		name := m.Name
		if m.Parent != nil {
			name = "  " + strings.TrimPrefix(m.Name, m.Parent.Name)
		}
		const width = 44
		fmt.Fprintf(b, "    %s%s: %s\n", name, strings.Repeat(".", max(3, width-len(name))), line(in, m, sink))
	}
}

// line renders the values of one metric.
func line(in Input, m *metric.Metric, s *metric.Sink) string {
	unit := in.Options.SummaryTimeUnit
	switch m.Kind {
	case metric.Counter:
		return fmt.Sprintf("%s  %s/s", amount(m.Contains, s.Sum, unit), amount(m.Contains, metric.PerSecond(s.Sum, in.Elapsed), unit))
	case metric.Gauge:
		return fmt.Sprintf("%s  min=%s max=%s", amount(m.Contains, s.Last, unit), amount(m.Contains, s.Min, unit), amount(m.Contains, s.Max, unit))
	case metric.Rate:
		return fmt.Sprintf("%.2f%%  %d out of %d", 100*s.Share(), s.NonZero, s.Count)
	default:
		var parts []string
		for _, stat := range in.Options.SummaryTrendStats {
			v, _ := s.Stat(stat) // the names were checked before the run
			if stat == "count" {
				parts = append(parts, "count="+strconv.FormatUint(s.Count, 10))
				continue
			}
			parts = append(parts, stat+"="+amount(m.Contains, v, unit))
		}
		return strings.Join(parts, " ")
	}
}

// amount renders a value of the given sort.
func amount(contains metric.Contains, v float64, unit string) string {
	switch contains {
	case metric.Time:
		return span(v, unit)
	case metric.Data:
		return size(v)
	default:
		return strconv.FormatFloat(v, 'g', 9, 64)
	}
}

// span renders milliseconds, in the unit the script asked for or the one that fits.
func span(ms float64, unit string) string {
	switch unit {
	case "s":
		return fmt.Sprintf("%.3fs", ms/1000)
	case "ms":
		return fmt.Sprintf("%.2fms", ms)
	case "us":
		return fmt.Sprintf("%.2fµs", ms*1000)
	}
	switch {
	case ms == 0:
		return "0s"
	case ms < 1:
		return fmt.Sprintf("%.2fµs", ms*1000)
	case ms < 1000:
		return fmt.Sprintf("%.2fms", ms)
	default:
		return time.Duration(ms * float64(time.Millisecond)).Round(10 * time.Millisecond).String()
	}
}

// size renders bytes.
func size(bytes float64) string {
	for _, u := range []struct {
		factor float64
		name   string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if bytes >= u.factor {
			return fmt.Sprintf("%.2f %s", bytes/u.factor, u.name)
		}
	}
	return fmt.Sprintf("%d B", int64(math.Round(bytes)))
}
