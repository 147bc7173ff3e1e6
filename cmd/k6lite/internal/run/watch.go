package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

// every is how often the run looks at itself.
const every = time.Second

// watch samples the gauges vus and vus_max, ends the run when a threshold with abortOnFail is crossed, and shows
// progress, until over is closed.
func (r *run) watch(over <-chan struct{}) {
	rec := r.host.Registry.Recorder()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	show := r.cfg.StderrTerminal && !r.cfg.Quiet
	for {
		state, b := r.host.State, r.host.Builtin
		rec.Add(nil,
			metric.Sample{Metric: b.VUs, Value: float64(state.Active.Load())},
			metric.Sample{Metric: b.VUsMax, Value: float64(state.Initialized.Load())})
		if show {
			r.progress()
		}
		select {
		case <-over:
			if show {
				_, _ = fmt.Fprintln(r.cfg.Stderr) // a terminal that went away is no reason to stop
			}
			return
		case <-ticker.C:
		}
		if crossed := r.crossed(); len(crossed) > 0 {
			r.abort(&thresholdError{crossed})
		}
	}
}

// crossed names the metrics on which a threshold with abortOnFail fails now.
func (r *run) crossed() []string {
	elapsed := r.host.State.Elapsed()
	return r.failing(elapsed, func(t *metric.Threshold) bool { return t.AbortOnFail && elapsed >= t.Delay })
}

// judge evaluates all thresholds once the run is over.
func (r *run) judge() error {
	if failed := r.failing(r.elapsed, func(*metric.Threshold) bool { return true }); len(failed) > 0 {
		return &thresholdError{failed}
	}
	return nil
}

func (r *run) failing(elapsed time.Duration, counts func(*metric.Threshold) bool) []string {
	var names []string
	for _, m := range r.host.Registry.All() {
		if !slices.ContainsFunc(m.Thresholds, counts) {
			continue
		}
		sink := r.host.Registry.Read(m)
		for _, t := range m.Thresholds {
			if counts(t) && !t.Judge(m.Kind, sink, elapsed).OK {
				names = append(names, m.Name)
				break
			}
		}
	}
	return names
}

// announce says what is about to run.
func (r *run) announce() {
	if r.cfg.Quiet {
		return
	}
	_, _ = fmt.Fprintf(r.cfg.Stderr, "k6lite: a checker of k6 scripts, not k6\n  script: %s\n", r.host.Script.Path())
	for i := range r.host.Options.Scenarios {
		s := &r.host.Options.Scenarios[i]
		_, _ = fmt.Fprintf(r.cfg.Stderr, "  * %s: %s\n", s.Name, s.Describe())
	}
}

// progress rewrites one line of the terminal.
func (r *run) progress() {
	state := r.host.State
	var line strings.Builder
	fmt.Fprintf(&line, "running (%s), %d/%d VUs, %d complete and %d interrupted iterations",
		state.Elapsed().Round(time.Second), state.Active.Load(), state.Initialized.Load(),
		state.Completed.Load(), state.Interrupted.Load())
	for i, runner := range r.runners {
		fmt.Fprintf(&line, "  %s %.0f%%", r.host.Options.Scenarios[i].Name, 100*runner.Progress())
	}
	_, _ = fmt.Fprintf(r.cfg.Stderr, "\r\x1b[K%s", line.String())
}
