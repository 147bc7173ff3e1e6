package lab_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/lab"
)

func TestMain(m *testing.M) {
	if lab.PlayRole() {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// The short form of the lab: every anomaly is seen and every protection holds, once.
func TestEveryClaim(t *testing.T) {
	t.Parallel()
	results, err := lab.Run(t.Context(), lab.Config{Experiments: lab.All(), Runs: 1, Short: true})
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		for _, c := range r.Cases() {
			if c.Verdict == lab.Skipped {
				t.Logf("%s: %s: %s", r.Name, c.Title, c.Problem)
			} else if c.Verdict != lab.Shown {
				t.Errorf("%s: %s: %s: seen in %d of %d; %s %v", r.Name, c.Title, c.Verdict, c.Seen, c.Runs, c.Problem, c.Notes)
			} else {
				t.Logf("%s: %s: %v %v", r.Name, c.Title, c.Took, c.Notes)
			}
		}
	}
}
