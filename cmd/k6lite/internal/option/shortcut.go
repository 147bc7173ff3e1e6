package option

import (
	"encoding/json"
	"errors"
	"fmt"
)

// CommandLine holds the options given as flags; they win over the script's.
type CommandLine struct {
	VUs        *int
	Iterations *int
	Duration   *Duration
}

// override applies the flags. A flag that says how long to run replaces the script's whole plan; --vus alone only
// changes the script's own vus.
func (c CommandLine) override(raw *rawOptions) {
	if c.Duration != nil || c.Iterations != nil {
		raw.Scenarios, raw.Stages = nil, nil
		raw.Duration, raw.Iterations = c.Duration, c.Iterations
	}
	if c.VUs != nil {
		raw.VUs = c.VUs
	}
}

// scenarios returns what the run executes: the script's scenarios, or the one that its shortcuts stand for.
func (raw *rawOptions) scenarios() ([]Scenario, error) {
	if raw.Scenarios == nil {
		one, err := raw.shortcut()
		if err != nil {
			return nil, err
		}
		s, err := one.resolve("default")
		if err != nil {
			return nil, fmt.Errorf("options.%w", err)
		}
		return bounded([]Scenario{s})
	}
	if raw.VUs != nil || raw.Duration != nil || raw.Iterations != nil || raw.Stages != nil {
		return nil, errors.New("options.scenarios: cannot be combined with vus, duration, iterations or stages")
	}
	if len(raw.Scenarios) == 0 {
		return nil, errors.New("options.scenarios: is empty")
	}
	var all []Scenario
	for _, name := range sortedKeys(raw.Scenarios) {
		one, err := decodeScenario(raw.Scenarios[name])
		if err != nil {
			return nil, fmt.Errorf("options.scenarios.%s.%w", name, err)
		}
		s, err := one.resolve(name)
		if err != nil {
			return nil, fmt.Errorf("options.scenarios.%s.%w", name, err)
		}
		all = append(all, s)
	}
	return bounded(all)
}

func bounded(all []Scenario) ([]Scenario, error) {
	sum := 0
	for i := range all {
		sum += all[i].MaxActive()
	}
	if sum > MaxVUs {
		return nil, fmt.Errorf("options: %d virtual users in all; k6lite's limit is %d", sum, MaxVUs)
	}
	return all, nil
}

// shortcut turns vus, duration, iterations and stages into the scenario the documentation says they mean.
func (raw *rawOptions) shortcut() (*rawScenario, error) {
	switch {
	case raw.Stages != nil:
		if raw.Duration != nil || raw.Iterations != nil {
			return nil, errors.New("options.stages: cannot be combined with duration or iterations")
		}
		return &rawScenario{Executor: RampingVUs, Stages: raw.Stages, StartVUs: raw.VUs}, nil
	case raw.Iterations != nil:
		return &rawScenario{Executor: SharedIterations, VUs: raw.VUs, Iterations: raw.Iterations, MaxDuration: raw.Duration}, nil
	case raw.Duration != nil:
		return &rawScenario{Executor: ConstantVUs, VUs: raw.VUs, Duration: raw.Duration}, nil
	case raw.VUs != nil:
		return nil, errors.New("options.vus: needs duration, iterations or stages beside it")
	default:
		return &rawScenario{Executor: SharedIterations}, nil
	}
}

// consolidate builds what the script sees as exec.test.options: every documented name, null where it was not set,
// and the scenarios that the shortcuts stand for.
func consolidate(script rawRecord, raw rawOptions, scenarios []Scenario) ([]byte, error) {
	all := map[string]any{}
	for _, name := range unsupported {
		all[name] = nil
	}
	for _, name := range supported {
		all[name] = nil
	}
	for name, text := range script {
		all[name] = text
	}
	all["vus"], all["duration"], all["iterations"], all["stages"] = nil, nil, nil, nil
	if raw.VUs != nil {
		all["vus"] = *raw.VUs
	}
	if raw.Duration != nil {
		all["duration"] = *raw.Duration
	}
	if raw.Iterations != nil {
		all["iterations"] = *raw.Iterations
	}
	if raw.Stages != nil {
		all["stages"] = raw.Stages
	}
	if raw.Scenarios != nil {
		all["scenarios"] = raw.Scenarios
	} else {
		one, err := raw.shortcut()
		if err != nil {
			return nil, err
		}
		all["scenarios"] = map[string]*rawScenario{scenarios[0].Name: one}
	}
	return json.Marshal(all)
}
