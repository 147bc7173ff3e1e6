package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/lab"
)

func TestMain(m *testing.M) {
	if lab.PlayRole() {
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWrongUseIsExplained(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no such experiment": {[]string{"run", "paused-holder", "no-such"}, `there is no experiment "no-such"`},
		"no runs":            {[]string{"run", "--runs", "0"}, "--runs is 0"},
		"too many runs":      {[]string{"run", "--runs", "1001"}, "--runs is 1001"},
		"unknown flag":       {[]string{"run", "--fast"}, "--fast"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, complaints bytes.Buffer
			if code := run(t.Context(), test.args, &out, &complaints); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if !strings.Contains(complaints.String(), test.want) {
				t.Errorf("it says %q, without %q", complaints.String(), test.want)
			}
		})
	}
}

func TestListNamesEveryExperiment(t *testing.T) {
	t.Parallel()
	var out, complaints bytes.Buffer
	if code := run(t.Context(), []string{"list"}, &out, &complaints); code != 0 {
		t.Fatalf("exit code %d: %s", code, complaints.String())
	}
	for _, e := range lab.All() {
		if !strings.Contains(out.String(), e.Name) || !strings.Contains(out.String(), e.Question) {
			t.Errorf("%s is not listed", e.Name)
		}
	}
}

// A process is stopped and goes on; the page and the JSON tell of it.
func TestRunTellsWhatWasSeen(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "report.html")
	var out, complaints bytes.Buffer
	if code := run(t.Context(), []string{"run", "paused-holder", "--runs", "1", "--json", "--report", page}, &out, &complaints); code != 0 {
		t.Fatalf("exit code %d: %s", code, complaints.String())
	}
	var results []lab.Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Verdict != lab.Shown || len(results[0].Anomalies) != 1 || len(results[0].Protections) != 2 {
		t.Errorf("the results are %+v", results)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SIGSTOP", "<svg", "refused", "1 of 1"} {
		if !bytes.Contains(html, []byte(want)) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, asks := range []string{"src=", `href="http`, "@import", "url("} {
		if bytes.Contains(html, []byte(asks)) {
			t.Errorf("the page may ask something of the network: it contains %q", asks)
		}
	}
}
