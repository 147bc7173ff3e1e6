package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFlagsMayStandOnEitherSideOfTheScript(t *testing.T) {
	t.Setenv("FROM_OUTSIDE", "x")
	cfg, err := parse([]string{"-e", "A=b=c", "--vus", "5", "script.js", "-d", "1m30s", "--env", "EMPTY=", "-q", "--verbose", "-i", "7"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Script != "script.js" || !cfg.Quiet || !cfg.Verbose {
		t.Errorf("got %+v", cfg)
	}
	if *cfg.CLI.VUs != 5 || *cfg.CLI.Iterations != 7 || time.Duration(*cfg.CLI.Duration) != 90*time.Second {
		t.Errorf("got %+v", cfg.CLI)
	}
	empty, ok := cfg.Env["EMPTY"]
	if cfg.Env["A"] != "b=c" || cfg.Env["FROM_OUTSIDE"] != "x" || empty != "" || !ok {
		t.Errorf("got %q", cfg.Env)
	}
}

func TestWrongUseIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--vus", "5"}, {"a.js", "b.js"}, {"a.js", "--nope"}, {"a.js", "--out", "json"}, {"a.js", "--vus", "0"},
		{"a.js", "--vus", "1.5"}, {"a.js", "--vus", "5x"}, {"a.js", "--duration", "5"}, {"a.js", "-e", "A"}, {"a.js", "-e", "=b"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if code := start([]string{"archive", "a.js"}); code != 2 {
		t.Errorf("another command: exit code %d, want 2", code)
	}
	t.Setenv("K6_VUS", "5")
	if _, err := parse([]string{"a.js"}); err == nil {
		t.Error("an option in the environment was ignored")
	}
}

func TestScriptRunsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.js")
	text := `
		import exec from 'k6/execution';
		export const options = { thresholds: { iterations: [__ENV.LIMIT] } };
		export default function () {}
		export function handleSummary() { return {}; }`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[string]int{"count==3": 0, "count==4": 99, "count~4": 104} {
		if code := start([]string{"run", "-q", "-i", "3", "-e", "LIMIT=" + limit, script}); code != want {
			t.Errorf("%s: exit code %d, want %d", limit, code, want)
		}
	}
}
