package option

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The documented executors.
const (
	SharedIterations    = "shared-iterations"
	PerVUIterations     = "per-vu-iterations"
	ConstantVUs         = "constant-vus"
	RampingVUs          = "ramping-vus"
	ConstantArrivalRate = "constant-arrival-rate"
	RampingArrivalRate  = "ramping-arrival-rate"
)

// Scenario is one workload. Fields its executor does not have are zero.
type Scenario struct {
	Name         string
	Executor     string
	Exec         string // exported function that is one iteration
	StartTime    time.Duration
	GracefulStop time.Duration
	Env          map[string]string
	Tags         map[string]string

	VUs         int
	Iterations  int
	MaxDuration time.Duration // of the executors that count iterations, without GracefulStop
	Duration    time.Duration // of the executors that run for a time, without GracefulStop

	StartVUs         int
	Stages           []Stage
	GracefulRampDown time.Duration

	Rate            int // iterations per TimeUnit; also startRate
	TimeUnit        time.Duration
	PreAllocatedVUs int
	MaxVUs          int
}

type rawScenario struct {
	Executor         string            `json:"executor"`
	Exec             *string           `json:"exec,omitempty"`
	StartTime        *Duration         `json:"startTime,omitempty"`
	GracefulStop     *Duration         `json:"gracefulStop,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	Tags             map[string]string `json:"tags,omitempty"`
	VUs              *int              `json:"vus,omitempty"`
	Iterations       *int              `json:"iterations,omitempty"`
	MaxDuration      *Duration         `json:"maxDuration,omitempty"`
	Duration         *Duration         `json:"duration,omitempty"`
	StartVUs         *int              `json:"startVUs,omitempty"`
	Stages           []Stage           `json:"stages,omitempty"`
	GracefulRampDown *Duration         `json:"gracefulRampDown,omitempty"`
	Rate             *int              `json:"rate,omitempty"`
	StartRate        *int              `json:"startRate,omitempty"`
	TimeUnit         *Duration         `json:"timeUnit,omitempty"`
	PreAllocatedVUs  *int              `json:"preAllocatedVUs,omitempty"`
	MaxVUs           *int              `json:"maxVUs,omitempty"`
}

// common are the fields every executor has; fieldsOf adds its own.
var common = []string{"executor", "exec", "startTime", "gracefulStop", "env", "tags"}

var fieldsOf = map[string][]string{
	SharedIterations:    {"vus", "iterations", "maxDuration"},
	PerVUIterations:     {"vus", "iterations", "maxDuration"},
	ConstantVUs:         {"vus", "duration"},
	RampingVUs:          {"startVUs", "stages", "gracefulRampDown"},
	ConstantArrivalRate: {"duration", "rate", "timeUnit", "preAllocatedVUs", "maxVUs"},
	RampingArrivalRate:  {"startRate", "stages", "timeUnit", "preAllocatedVUs", "maxVUs"},
}

// decodeScenario turns the fields of one scenario into its raw form, refusing any that its executor does not have.
func decodeScenario(fields rawRecord) (rawScenario, error) {
	var raw rawScenario
	fields.dropNulls()
	if err := json.Unmarshal(fields["executor"], &raw.Executor); err != nil {
		return raw, errors.New("needs an executor")
	}
	own, ok := fieldsOf[raw.Executor]
	if !ok {
		return raw, fmt.Errorf("executor: there is no %q; k6lite has %s", raw.Executor, strings.Join(sortedKeys(fieldsOf), ", "))
	}
	for _, name := range sortedKeys(fields) {
		if !slices.Contains(common, name) && !slices.Contains(own, name) {
			return raw, fmt.Errorf("%s: the executor %s has no such field", name, raw.Executor)
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return raw, err
	}
	return raw, json.Unmarshal(text, &raw)
}

// resolve applies the documented defaults and checks what the executor needs.
func (raw *rawScenario) resolve(name string) (Scenario, error) {
	s := Scenario{
		Name:             name,
		Executor:         raw.Executor,
		Exec:             value(raw.Exec, "default"),
		StartTime:        span(raw.StartTime, 0),
		GracefulStop:     span(raw.GracefulStop, 30*time.Second),
		Env:              raw.Env,
		Tags:             raw.Tags,
		VUs:              value(raw.VUs, 1),
		Iterations:       value(raw.Iterations, 1),
		MaxDuration:      span(raw.MaxDuration, 10*time.Minute),
		Duration:         span(raw.Duration, 0),
		StartVUs:         value(raw.StartVUs, 1),
		Stages:           raw.Stages,
		GracefulRampDown: span(raw.GracefulRampDown, 30*time.Second),
		Rate:             value(raw.Rate, value(raw.StartRate, 0)),
		TimeUnit:         span(raw.TimeUnit, time.Second),
		PreAllocatedVUs:  value(raw.PreAllocatedVUs, 0),
	}
	s.MaxVUs = value(raw.MaxVUs, s.PreAllocatedVUs)
	return s, s.check(raw)
}

func (s *Scenario) check(raw *rawScenario) error {
	switch s.Executor {
	case SharedIterations, PerVUIterations:
		return firstFault(
			fault{s.VUs < 1, "vus: must be at least 1"},
			fault{s.Iterations < 1, "iterations: must be at least 1"},
			fault{s.MaxDuration <= 0, "maxDuration: must be positive"},
			fault{s.Executor == SharedIterations && s.Iterations < s.VUs, "iterations: must not be fewer than vus"},
		)
	case ConstantVUs:
		return firstFault(
			fault{s.VUs < 1, "vus: must be at least 1"},
			fault{s.Duration <= 0, "duration: is required and must be positive"},
		)
	case RampingVUs:
		return firstFault(
			fault{s.StartVUs < 0, "startVUs: must not be negative"},
			fault{len(s.Stages) == 0, "stages: at least one is required"},
			fault{s.MaxActive() == 0, "stages: no virtual user would ever run"},
		)
	case ConstantArrivalRate:
		return firstFault(
			fault{s.Rate < 1, "rate: is required and must be at least 1"},
			fault{s.Duration <= 0, "duration: is required and must be positive"},
			fault{raw.PreAllocatedVUs == nil || s.MaxVUs < 1, "preAllocatedVUs: is required"},
			fault{s.MaxVUs < s.PreAllocatedVUs, "maxVUs: must not be less than preAllocatedVUs"},
			fault{s.TimeUnit <= 0, "timeUnit: must be positive"},
		)
	default:
		return firstFault(
			fault{s.Rate < 0, "startRate: must not be negative"},
			fault{len(s.Stages) == 0, "stages: at least one is required"},
			fault{raw.PreAllocatedVUs == nil || s.MaxVUs < 1, "preAllocatedVUs: is required"},
			fault{s.MaxVUs < s.PreAllocatedVUs, "maxVUs: must not be less than preAllocatedVUs"},
			fault{s.TimeUnit <= 0, "timeUnit: must be positive"},
		)
	}
}

type fault struct {
	holds bool
	text  string
}

func firstFault(faults ...fault) error {
	for _, f := range faults {
		if f.holds {
			return errors.New(f.text)
		}
	}
	return nil
}

func value[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

func span(p *Duration, def time.Duration) time.Duration {
	if p == nil {
		return def
	}
	return time.Duration(*p)
}

// MaxActive is the most virtual users the scenario may have at once.
func (s *Scenario) MaxActive() int {
	switch s.Executor {
	case RampingVUs:
		most := s.StartVUs
		for _, stage := range s.Stages {
			most = max(most, stage.Target)
		}
		return most
	case ConstantArrivalRate, RampingArrivalRate:
		return s.MaxVUs
	default:
		return s.VUs
	}
}

// Planned is the scenario's length from its own start, without the grace at its end. For the executors that count
// iterations it is the limit MaxDuration.
func (s *Scenario) Planned() time.Duration {
	switch s.Executor {
	case SharedIterations, PerVUIterations:
		return s.MaxDuration
	case RampingVUs, RampingArrivalRate:
		var sum time.Duration
		for _, stage := range s.Stages {
			sum += stage.Duration
		}
		return sum
	default:
		return s.Duration
	}
}

// Describe says in a line what the scenario will do.
func (s *Scenario) Describe() string {
	var what string
	switch s.Executor {
	case SharedIterations:
		what = fmt.Sprintf("%d iterations shared among %d VUs (maxDuration %s", s.Iterations, s.VUs, s.MaxDuration)
	case PerVUIterations:
		what = fmt.Sprintf("%d iterations for each of %d VUs (maxDuration %s", s.Iterations, s.VUs, s.MaxDuration)
	case ConstantVUs:
		what = fmt.Sprintf("%d looping VUs for %s (", s.VUs, s.Duration)
	case RampingVUs:
		what = fmt.Sprintf("up to %d looping VUs for %s over %d stages (", s.MaxActive(), s.Planned(), len(s.Stages))
	case ConstantArrivalRate:
		what = fmt.Sprintf("%d iterations per %s for %s (maxVUs %d-%d", s.Rate, s.TimeUnit, s.Duration, s.PreAllocatedVUs, s.MaxVUs)
	case RampingArrivalRate:
		what = fmt.Sprintf("iterations from %d per %s for %s over %d stages (maxVUs %d-%d",
			s.Rate, s.TimeUnit, s.Planned(), len(s.Stages), s.PreAllocatedVUs, s.MaxVUs)
	}
	if !strings.HasSuffix(what, "(") {
		what += ", "
	}
	if s.Exec != "default" {
		what += "exec " + s.Exec + ", "
	}
	if s.StartTime > 0 {
		what += "startTime " + s.StartTime.String() + ", "
	}
	return what + "gracefulStop " + s.GracefulStop.String() + ")"
}
