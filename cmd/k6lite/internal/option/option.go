// Package option reads the options a script exports, by the names and rules of the public k6 documentation.
//
// It settles what a run looks like before it starts: which scenarios, for how long, under which thresholds. It refuses
// everything it cannot honour: an unknown name, a name k6 documents but this runner does not support, a field that the
// chosen executor does not have. Nothing is ignored, because a check that silently does less than it says is worse
// than none.
package option

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxVUs bounds the virtual users of one run, all scenarios together: each is a JavaScript runtime of its own.
const MaxVUs = 20_000

// Options is a complete, validated description of a run.
type Options struct {
	Scenarios             []Scenario
	Thresholds            map[string][]Threshold
	Tags                  map[string]string
	SetupTimeout          time.Duration
	TeardownTimeout       time.Duration
	HandleSummaryTimeout  time.Duration
	MinIterationDuration  time.Duration
	SummaryTrendStats     []string
	SummaryTimeUnit       string
	Batch                 int
	BatchPerHost          int
	MaxRedirects          int
	UserAgent             string
	DiscardResponseBodies bool
	NoConnectionReuse     bool
	NoVUConnectionReuse   bool
	InsecureSkipTLSVerify bool
	Throw                 bool

	// Consolidated is the JSON object a script sees as exec.test.options.
	Consolidated []byte
}

// Threshold is one expression a metric must satisfy, as written in the script.
type Threshold struct {
	Expression     string
	AbortOnFail    bool
	DelayAbortEval time.Duration
}

// rawOptions mirrors the documented option names that are supported.
type rawOptions struct {
	VUs                   *int                  `json:"vus"`
	Duration              *Duration             `json:"duration"`
	Iterations            *int                  `json:"iterations"`
	Stages                []Stage               `json:"stages"`
	Scenarios             map[string]rawRecord  `json:"scenarios"`
	Thresholds            map[string][]rawLimit `json:"thresholds"`
	Tags                  map[string]string     `json:"tags"`
	SetupTimeout          *Duration             `json:"setupTimeout"`
	TeardownTimeout       *Duration             `json:"teardownTimeout"`
	HandleSummaryTimeout  *Duration             `json:"handleSummaryTimeout"`
	MinIterationDuration  *Duration             `json:"minIterationDuration"`
	SummaryTrendStats     []string              `json:"summaryTrendStats"`
	SummaryTimeUnit       string                `json:"summaryTimeUnit"`
	Batch                 *int                  `json:"batch"`
	BatchPerHost          *int                  `json:"batchPerHost"`
	MaxRedirects          *int                  `json:"maxRedirects"`
	UserAgent             *string               `json:"userAgent"`
	DiscardResponseBodies bool                  `json:"discardResponseBodies"`
	NoConnectionReuse     bool                  `json:"noConnectionReuse"`
	NoVUConnectionReuse   bool                  `json:"noVUConnectionReuse"`
	InsecureSkipTLSVerify bool                  `json:"insecureSkipTLSVerify"`
	Throw                 bool                  `json:"throw"`
}

// supported are the JSON names of rawOptions.
var supported = []string{
	"vus", "duration", "iterations", "stages", "scenarios", "thresholds", "tags", "setupTimeout", "teardownTimeout",
	"handleSummaryTimeout", "minIterationDuration", "summaryTrendStats", "summaryTimeUnit", "batch", "batchPerHost",
	"maxRedirects", "userAgent", "discardResponseBodies", "noConnectionReuse", "noVUConnectionReuse",
	"insecureSkipTLSVerify", "throw",
}

// unsupported are options k6 documents and this runner does not have.
var unsupported = []string{
	"blacklistIPs", "blockHostnames", "cloud", "dns", "executionSegment", "executionSegmentSequence", "ext", "hosts",
	"httpDebug", "linger", "localIPs", "noCookiesReset", "noUsageReport", "paused", "rps", "systemTags", "tlsAIAFetch",
	"tlsAuth", "tlsCipherSuites", "tlsVersion", "vusMax",
}

// Parse reads exported, the JSON of the script's options (nil when it exports none), applies the command line on top
// and returns the validated result.
func Parse(exported []byte, cli CommandLine) (*Options, error) {
	fields := rawRecord{}
	if len(exported) > 0 {
		if err := json.Unmarshal(exported, &fields); err != nil {
			return nil, fmt.Errorf("options: must be an object: %w", err)
		}
	}
	fields.dropNulls()
	for _, name := range sortedKeys(fields) {
		switch {
		case slices.Contains(supported, name):
		case slices.Contains(unsupported, name):
			return nil, fmt.Errorf("options.%s: documented by k6, not supported by k6lite; run this script with k6", name)
		default:
			return nil, fmt.Errorf("options.%s: no such option", name)
		}
	}
	raw := rawOptions{}
	if len(exported) > 0 {
		if err := json.Unmarshal(exported, &raw); err != nil {
			return nil, fmt.Errorf("options: %w", err)
		}
	}
	cli.override(&raw)
	o, err := raw.resolve()
	if err != nil {
		return nil, err
	}
	o.Consolidated, err = consolidate(fields, raw, o.Scenarios)
	return o, err
}

func (raw *rawOptions) resolve() (*Options, error) {
	o := &Options{
		Tags:                  raw.Tags,
		SummaryTrendStats:     raw.SummaryTrendStats,
		SummaryTimeUnit:       raw.SummaryTimeUnit,
		DiscardResponseBodies: raw.DiscardResponseBodies,
		NoConnectionReuse:     raw.NoConnectionReuse,
		NoVUConnectionReuse:   raw.NoVUConnectionReuse,
		InsecureSkipTLSVerify: raw.InsecureSkipTLSVerify,
		Throw:                 raw.Throw,
		UserAgent:             "k6lite",
	}
	if raw.UserAgent != nil {
		o.UserAgent = *raw.UserAgent
	}
	if len(o.SummaryTrendStats) == 0 {
		o.SummaryTrendStats = []string{"avg", "min", "med", "max", "p(90)", "p(95)"}
	}
	if !slices.Contains([]string{"", "s", "ms", "us"}, o.SummaryTimeUnit) {
		return nil, fmt.Errorf("options.summaryTimeUnit: %q is none of s, ms, us", o.SummaryTimeUnit)
	}
	if err := raw.resolveLimits(o); err != nil {
		return nil, err
	}
	if err := raw.resolveThresholds(o); err != nil {
		return nil, err
	}
	var err error
	o.Scenarios, err = raw.scenarios()
	return o, err
}

// resolveLimits fills in the durations and counts that have a documented default.
func (raw *rawOptions) resolveLimits(o *Options) error {
	for _, d := range []struct {
		name string
		from *Duration
		to   *time.Duration
		def  time.Duration
	}{
		{"setupTimeout", raw.SetupTimeout, &o.SetupTimeout, 60 * time.Second},
		{"teardownTimeout", raw.TeardownTimeout, &o.TeardownTimeout, 60 * time.Second},
		{"handleSummaryTimeout", raw.HandleSummaryTimeout, &o.HandleSummaryTimeout, 120 * time.Second},
		{"minIterationDuration", raw.MinIterationDuration, &o.MinIterationDuration, 0},
	} {
		*d.to = d.def
		if d.from != nil {
			*d.to = time.Duration(*d.from)
			if *d.to <= 0 {
				return fmt.Errorf("options.%s: must be positive", d.name)
			}
		}
	}
	for _, n := range []struct {
		name     string
		from     *int
		to       *int
		def, min int
	}{
		{"batch", raw.Batch, &o.Batch, 20, 1},
		{"batchPerHost", raw.BatchPerHost, &o.BatchPerHost, 6, 1},
		{"maxRedirects", raw.MaxRedirects, &o.MaxRedirects, 10, 0},
	} {
		*n.to = n.def
		if n.from != nil {
			*n.to = *n.from
			if *n.to < n.min {
				return fmt.Errorf("options.%s: must be at least %d", n.name, n.min)
			}
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
