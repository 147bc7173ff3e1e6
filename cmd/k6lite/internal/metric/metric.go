// Package metric keeps what a run measured: the four documented kinds of metric, their sub-metrics by tag, the
// thresholds on them, and the tree of groups and checks.
//
// Values are never kept, only counts, sums and a histogram a metric, so a run of any length fits in memory. Virtual
// users write to a handful of recorders, each with its own lock; readers merge them.
package metric

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is one of the four documented kinds of metric.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota
	Gauge
	Rate
	Trend
)

func (k Kind) String() string { return [...]string{"counter", "gauge", "rate", "trend"}[k] }

// Contains says what a metric's values are.
type Contains string

// What values can be. Time is in milliseconds, Data in bytes.
const (
	Default Contains = "default"
	Time    Contains = "time"
	Data    Contains = "data"
)

// Metric is one series of values, or, when Parent is set, the part of Parent's values whose tags match.
type Metric struct {
	Name       string
	Kind       Kind
	Contains   Contains
	Parent     *Metric
	Thresholds []*Threshold

	match []Tag
	subs  []*Metric
	id    int
}

// limits keep a script from filling the memory with names.
const (
	maxMetrics = 1000
	recorders  = 8
)

// ErrFrozen is returned for a metric declared after the run began.
var ErrFrozen = errors.New("metrics can only be declared in the init context")

// Registry holds all metrics of a run. Metrics are declared first; after Freeze the set is fixed and values may come.
type Registry struct {
	mu     sync.Mutex // guards names, frozen
	names  map[string]*Metric
	all    []*Metric
	frozen bool

	epoch     time.Time
	recorders [recorders]Recorder
	next      int
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{names: map[string]*Metric{}, epoch: time.Now()}
}

var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// Declare returns the metric of that name, made on first use. Declaring it again as something else is an error.
func (r *Registry) Declare(name string, kind Kind, contains Contains) (*Metric, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.names[name]; m != nil {
		if m.Kind != kind || m.Contains != contains {
			return nil, fmt.Errorf("metric %s exists already, as a %s of %s values", name, m.Kind, m.Contains)
		}
		return m, nil
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("metric name %q: use letters, digits and _, not beginning with a digit, at most 128", name)
	}
	return r.put(&Metric{Name: name, Kind: kind, Contains: contains})
}

// put adds m. The caller holds mu.
func (r *Registry) put(m *Metric) (*Metric, error) {
	if r.frozen {
		return nil, ErrFrozen
	}
	if len(r.all) >= maxMetrics {
		return nil, fmt.Errorf("metric %s: more than %d metrics", m.Name, maxMetrics)
	}
	m.id = len(r.all)
	r.all = append(r.all, m)
	r.names[m.Name] = m
	return m, nil
}

// Select returns the metric named in a threshold: "metric" or "metric{tag:value,…}", the latter made on first use.
func (r *Registry) Select(spec string) (*Metric, error) {
	name, rest, tagged := strings.Cut(spec, "{")
	r.mu.Lock()
	defer r.mu.Unlock()
	parent := r.names[strings.TrimSpace(name)]
	if parent == nil || parent.Parent != nil {
		return nil, fmt.Errorf("no metric is named %q", name)
	}
	if !tagged {
		return parent, nil
	}
	inner, closed := strings.CutSuffix(strings.TrimSpace(rest), "}")
	if !closed || strings.TrimSpace(inner) == "" {
		return nil, fmt.Errorf("%q: write metric{tag:value}", spec)
	}
	var match []Tag
	for part := range strings.SplitSeq(inner, ",") {
		key, value, ok := strings.Cut(part, ":")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: %q is not tag:value", spec, part)
		}
		match = append(match, Tag{key, strings.Trim(strings.TrimSpace(value), `"'`)})
	}
	if m := r.names[spec]; m != nil {
		return m, nil
	}
	m, err := r.put(&Metric{Name: spec, Kind: parent.Kind, Contains: parent.Contains, Parent: parent, match: match})
	if err == nil {
		parent.subs = append(parent.subs, m)
	}
	return m, err
}

// Freeze ends declaration; only now may recorders be used.
func (r *Registry) Freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = true
	for i := range r.recorders {
		r.recorders[i].sinks = make([]Sink, len(r.all))
		r.recorders[i].now = func() time.Duration { return time.Since(r.epoch) }
	}
}

// Recorder hands out one of the recorders in turn. It may be used by many at once.
func (r *Registry) Recorder() *Recorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return &r.recorders[r.next%recorders]
}

// All lists the metrics in name order.
func (r *Registry) All() []*Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.all)
	slices.SortFunc(all, func(a, b *Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Read merges what all recorders know of m.
func (r *Registry) Read(m *Metric) *Sink {
	sum := new(Sink)
	for i := range r.recorders {
		rec := &r.recorders[i]
		rec.mu.Lock()
		if m.id < len(rec.sinks) {
			sum.merge(&rec.sinks[m.id])
		}
		rec.mu.Unlock()
	}
	return sum
}

// Sample is one value of one metric.
type Sample struct {
	Metric *Metric
	Value  float64
}

// Recorder takes values.
type Recorder struct {
	mu    sync.Mutex // guards sinks
	sinks []Sink
	now   func() time.Duration
}

// Add counts the samples, all with the same tags, in their metrics and in every sub-metric they match. Values must be
// finite.
func (rec *Recorder) Add(tags *Tags, samples ...Sample) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, s := range samples {
		rec.sinks[s.Metric.id].add(s.Metric.Kind, s.Value, rec.now)
		for _, sub := range s.Metric.subs {
			if tags.match(sub.match) {
				rec.sinks[sub.id].add(sub.Kind, s.Value, rec.now)
			}
		}
	}
}
