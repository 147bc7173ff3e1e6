package option

import (
	"encoding/json"
	"fmt"
	"time"
)

// rawRecord is a JSON object whose fields have not been looked at yet.
type rawRecord map[string]json.RawMessage

// dropNulls forgets the fields that are null: k6 treats null as "not set".
func (r rawRecord) dropNulls() {
	for name, text := range r {
		if string(text) == "null" {
			delete(r, name)
		}
	}
}

// Duration is a documented duration string such as "1m30s".
type Duration time.Duration

// UnmarshalJSON accepts what [time.ParseDuration] accepts, without a sign.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s is not a duration string such as \"30s\"", text)
	}
	parsed, err := ParseDuration(s)
	*d = Duration(parsed)
	return err
}

// MarshalJSON writes the duration as Go prints it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// ParseDuration reads a documented duration; it refuses a negative one.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as \"30s\"", s)
	}
	return d, nil
}

// Stage is one leg of a ramp: Target is reached linearly at the end of Duration.
type Stage struct {
	Duration time.Duration
	Target   int
}

// UnmarshalJSON insists on both fields and on nothing else.
func (s *Stage) UnmarshalJSON(text []byte) error {
	var fields rawRecord
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("a stage is an object {duration, target}, not %s", text)
	}
	for _, name := range sortedKeys(fields) {
		if name != "duration" && name != "target" {
			return fmt.Errorf("a stage has no field %q", name)
		}
	}
	var raw struct {
		Duration *Duration `json:"duration"`
		Target   *int      `json:"target"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	if raw.Duration == nil || raw.Target == nil || *raw.Target < 0 {
		return fmt.Errorf("a stage needs a duration and a target of at least 0, not %s", text)
	}
	s.Duration, s.Target = time.Duration(*raw.Duration), *raw.Target
	return nil
}

// MarshalJSON writes the stage as the script wrote it.
func (s Stage) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Duration Duration `json:"duration"`
		Target   int      `json:"target"`
	}{Duration(s.Duration), s.Target})
}
