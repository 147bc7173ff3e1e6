// Package summary tells what came of a run: the documented object that handleSummary() receives, and a text for people.
package summary

import (
	"encoding/json"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
)

// Input is what a summary is made of.
type Input struct {
	Registry *metric.Registry
	Outline  *metric.Outline
	Options  *option.Options
	Elapsed  time.Duration // of the scenarios, without setup and teardown
	Stdout   bool          // whether it is a terminal
	Stderr   bool
}

// Data is the documented argument of handleSummary().
type Data struct {
	RootGroup Group             `json:"root_group"`
	Options   Options           `json:"options"`
	State     State             `json:"state"`
	Metrics   map[string]Metric `json:"metrics"`
}

// Group is a group with what is in it.
type Group struct {
	Name   string  `json:"name"`
	Path   string  `json:"path"`
	Groups []Group `json:"groups"`
	Checks []Check `json:"checks"`
}

// Check is the result of one check.
type Check struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Passes int64  `json:"passes"`
	Fails  int64  `json:"fails"`
}

// Options are the options a summary may need.
type Options struct {
	SummaryTrendStats []string `json:"summaryTrendStats"`
	SummaryTimeUnit   string   `json:"summaryTimeUnit"`
	NoColor           bool     `json:"noColor"`
}

// State says how the run went as a whole.
type State struct {
	IsStdOutTTY       bool    `json:"isStdOutTTY"`
	IsStdErrTTY       bool    `json:"isStdErrTTY"`
	TestRunDurationMs float64 `json:"testRunDurationMs"`
}

// Metric is what is left of one metric.
type Metric struct {
	Type       string             `json:"type"`
	Contains   string             `json:"contains"`
	Values     map[string]float64 `json:"values"`
	Thresholds map[string]OK      `json:"thresholds,omitempty"`
}

// OK is the result of one threshold.
type OK struct {
	OK bool `json:"ok"`
}

// New builds the data of a finished run. Metrics without values appear only when they have thresholds.
func New(in Input) *Data {
	d := &Data{
		RootGroup: group(in.Outline.Root()),
		Options:   Options{in.Options.SummaryTrendStats, in.Options.SummaryTimeUnit, !in.Stdout},
		State:     State{in.Stdout, in.Stderr, float64(in.Elapsed) / float64(time.Millisecond)},
		Metrics:   map[string]Metric{},
	}
	for _, m := range in.Registry.All() {
		sink := in.Registry.Read(m)
		if sink.Count == 0 && len(m.Thresholds) == 0 {
			continue
		}
		out := Metric{Type: m.Kind.String(), Contains: string(m.Contains), Values: values(in, m, sink)}
		for _, t := range m.Thresholds {
			if out.Thresholds == nil {
				out.Thresholds = map[string]OK{}
			}
			out.Thresholds[t.Source] = OK{t.Judge(m.Kind, sink, in.Elapsed).OK}
		}
		d.Metrics[m.Name] = out
	}
	return d
}

// JSON is the data as the script gets it.
func (d *Data) JSON() (string, error) {
	text, err := json.Marshal(d)
	return string(text), err
}

func values(in Input, m *metric.Metric, s *metric.Sink) map[string]float64 {
	switch m.Kind {
	case metric.Counter:
		return map[string]float64{"count": s.Sum, "rate": metric.PerSecond(s.Sum, in.Elapsed)}
	case metric.Gauge:
		return map[string]float64{"value": s.Last, "min": s.Min, "max": s.Max}
	case metric.Rate:
		return map[string]float64{
			"rate": s.Share(), "passes": float64(s.NonZero), "fails": float64(s.Count - s.NonZero),
		}
	default:
		all := map[string]float64{}
		for _, stat := range in.Options.SummaryTrendStats {
			all[stat], _ = s.Stat(stat) // the names were checked before the run
		}
		return all
	}
}

func group(g *metric.Group) Group {
	out := Group{Name: g.Name, Path: g.Path, Groups: []Group{}, Checks: []Check{}}
	for _, inner := range g.Groups() {
		out.Groups = append(out.Groups, group(inner))
	}
	for _, c := range g.Checks() {
		out.Checks = append(out.Checks, Check{c.Name, c.Path, c.Passes.Load(), c.Fails.Load()})
	}
	return out
}
