package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/lab"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// The lab itself is tested: what is not seen, or not every time, or cannot be arranged, is not called shown.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	runs := 0
	says := func(seen bool, err error) lab.Case {
		return lab.Case{Title: "a case", Run: func(context.Context, *lab.Stage) (bool, error) { return seen, err }}
	}
	sometimes := lab.Case{Title: "a case", Run: func(context.Context, *lab.Stage) (bool, error) { runs++; return runs == 1, nil }}
	for name, test := range map[string]struct {
		anomaly, protection lab.Case
		want                lab.Verdict
	}{
		"seen and held":             {says(true, nil), says(true, nil), lab.Shown},
		"anomaly does not occur":    {says(false, nil), says(true, nil), lab.Missing},
		"protection does not hold":  {says(true, nil), says(false, nil), lab.Missing},
		"held in one run of three":  {says(true, nil), sometimes, lab.Missing},
		"arrangement fails":         {says(true, errors.New("broken")), says(true, nil), lab.Broken},
		"protection cannot be had":  {says(true, nil), says(false, fmt.Errorf("etcd: %w", sandbox.ErrUnavailable)), lab.Skipped},
		"skipped does not hide bad": {says(false, nil), says(false, sandbox.ErrUnavailable), lab.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			experiment := &lab.Experiment{Name: "test", Anomalies: []lab.Case{test.anomaly}, Protections: []lab.Case{test.protection}}
			results, err := lab.Run(t.Context(), lab.Config{Experiments: []*lab.Experiment{experiment}, Runs: 3})
			if err != nil {
				t.Fatal(err)
			}
			if got := results[0].Verdict; got != test.want {
				t.Errorf("the verdict is %q, want %q", got, test.want)
			}
		})
	}
}

func TestExperimentsAreComplete(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for i, e := range lab.All() {
		if e.Number != i+1 {
			t.Errorf("experiment %s is number %d, but the %dth", e.Name, e.Number, i+1)
		}
		if names[e.Name] {
			t.Errorf("two experiments are called %s", e.Name)
		}
		names[e.Name] = true
		if e.Question == "" || e.Claim == "" || e.Setup == "" || len(e.Anomalies) == 0 || len(e.Protections) == 0 {
			t.Errorf("%s lacks something", e.Name)
		}
	}
}

// The documentation tells of every experiment, in its own words.
func TestDocsTellOfEveryExperiment(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range lab.All() {
		for _, words := range []string{e.Question, e.Claim, e.Setup} {
			if !strings.Contains(string(docs), words) {
				t.Errorf("docs/lab.md does not say %q; write it anew: go run ./cmd/lab run --docs docs", words)
			}
		}
	}
}
