package metric

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Threshold is one parsed condition on a metric.
type Threshold struct {
	Source      string // as written in the script
	AbortOnFail bool
	Delay       time.Duration // before AbortOnFail begins to count

	stat  string
	op    string
	bound float64
}

var expression = regexp.MustCompile(`^\s*([a-z]+(?:\([^)]*\))?)\s*(<=|>=|===|==|!=|<|>)\s*(\S+)\s*$`)

// statsOf are the documented aggregation methods of each kind; a Trend has percentiles as well.
var statsOf = map[Kind][]string{
	Counter: {"count", "rate"},
	Gauge:   {"value"},
	Rate:    {"rate"},
	Trend:   {"avg", "min", "max", "med"},
}

// ParseThreshold reads "<method> <operator> <value>" for a metric of the given kind.
func ParseThreshold(source string, kind Kind) (*Threshold, error) {
	parts := expression.FindStringSubmatch(source)
	if parts == nil {
		return nil, fmt.Errorf("threshold %q: write <method> <operator> <value>, such as p(95)<200", source)
	}
	bound, err := strconv.ParseFloat(parts[3], 64)
	if err != nil || bound != bound {
		return nil, fmt.Errorf("threshold %q: %q is not a number", source, parts[3])
	}
	t := &Threshold{Source: source, stat: parts[1], op: parts[2], bound: bound}
	if kind == Trend && strings.HasPrefix(t.stat, "p(") {
		if _, err := parsePercentile(t.stat); err != nil {
			return nil, fmt.Errorf("threshold %q: %w", source, err)
		}
		return t, nil
	}
	if !slices.Contains(statsOf[kind], t.stat) {
		return nil, fmt.Errorf("threshold %q: a %s has no %s", source, kind, t.stat)
	}
	return t, nil
}

// Verdict is the outcome of one threshold.
type Verdict struct {
	OK       bool
	Value    float64 // what the method gave
	Measured bool    // false when the metric has no value at all
}

// Judge evaluates the threshold on a sink of the given kind after the given time.
//
// A Rate or a Trend without a single value fails: nothing was measured, so nothing was shown. (k6 lets such a threshold
// pass; a script that passes here passes there.) A Counter without values is 0, and so is a Gauge.
func (t *Threshold) Judge(kind Kind, s *Sink, elapsed time.Duration) Verdict {
	v := Verdict{Measured: s.Count > 0}
	switch {
	case kind == Counter && t.stat == "count":
		v.Value = s.Sum
	case kind == Counter:
		v.Value = PerSecond(s.Sum, elapsed)
	case kind == Gauge:
		v.Value = s.Last
	case kind == Rate:
		v.Value = s.Share()
	default:
		v.Value, _ = s.Stat(t.stat) // the name was checked when it was parsed
	}
	v.OK = t.holds(v.Value) && (v.Measured || kind == Counter || kind == Gauge)
	return v
}

func (t *Threshold) holds(v float64) bool {
	switch t.op {
	case "<":
		return v < t.bound
	case "<=":
		return v <= t.bound
	case ">":
		return v > t.bound
	case ">=":
		return v >= t.bound
	case "!=":
		return v != t.bound
	default:
		return v == t.bound
	}
}

// PerSecond is sum divided by elapsed, 0 when no time has passed.
func PerSecond(sum float64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return sum / elapsed.Seconds()
}
