package option

import (
	"encoding/json"
	"fmt"
	"time"
)

// rawLimit is a threshold in either documented form: a string, or an object with abortOnFail.
type rawLimit struct{ Threshold }

// UnmarshalJSON accepts both forms.
func (l *rawLimit) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &l.Expression); err == nil {
		return nil
	}
	var fields rawRecord
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("a threshold is a string or an object, not %s", text)
	}
	for _, name := range sortedKeys(fields) {
		if name != "threshold" && name != "abortOnFail" && name != "delayAbortEval" {
			return fmt.Errorf("a threshold has no field %q", name)
		}
	}
	var raw struct {
		Threshold      string   `json:"threshold"`
		AbortOnFail    bool     `json:"abortOnFail"`
		DelayAbortEval Duration `json:"delayAbortEval"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("threshold: %w", err)
	}
	l.Threshold = Threshold{raw.Threshold, raw.AbortOnFail, time.Duration(raw.DelayAbortEval)}
	return nil
}

func (raw *rawOptions) resolveThresholds(o *Options) error {
	o.Thresholds = make(map[string][]Threshold, len(raw.Thresholds))
	for name, limits := range raw.Thresholds {
		if len(limits) == 0 {
			return fmt.Errorf("options.thresholds[%q]: no expression", name)
		}
		for _, l := range limits {
			o.Thresholds[name] = append(o.Thresholds[name], l.Threshold)
		}
	}
	return nil
}
