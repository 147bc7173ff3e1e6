package vm

import (
	"net/url"
	"sync/atomic"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
)

// Host is what a run gives to all its virtual users. Options is nil while the script is first evaluated to find them.
type Host struct {
	Script   *Script
	Options  *option.Options
	Registry *metric.Registry
	Builtin  *metric.Builtin
	Outline  *metric.Outline
	Env      map[string]string
	Proxy    func(*url.URL) (*url.URL, error) // which proxy k6 would use; nil for never any
	Log      *Log
	State    *State
	Warn     Warnings

	// Abort ends the run because of err. It may be called more than once and by many; the first error counts.
	Abort func(err error)
	// Fail marks the run as failed and lets it go on (exec.test.fail).
	Fail func(reason string)
}

// State counts what a run does.
type State struct {
	Started     time.Time // set before the first iteration
	Completed   atomic.Int64
	Interrupted atomic.Int64
	Active      atomic.Int64
	Initialized atomic.Int64
}

// Elapsed is the time since the scenarios began, 0 before.
func (s *State) Elapsed() time.Duration {
	if s.Started.IsZero() {
		return 0
	}
	return time.Since(s.Started)
}

// RunTags are the tags that the options set for the whole run.
func (h *Host) RunTags() *metric.Tags {
	tags := new(metric.Tags)
	for k, v := range h.Options.Tags {
		tags.Set(k, v)
	}
	return tags
}

// Workload is what a virtual user has to know about the scenario it works for.
type Workload struct {
	Name, Executor, Exec string
	Env                  map[string]string
	Tags                 *metric.Tags
	Started              time.Time
	Progress             func() float64 // between 0 and 1
}
