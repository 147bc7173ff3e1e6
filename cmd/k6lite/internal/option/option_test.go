package option_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
)

func parse(t *testing.T, text string, cli option.CommandLine) *option.Options {
	t.Helper()
	o, err := option.Parse([]byte(text), cli)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	o := parse(t, "", option.CommandLine{})
	got := *o
	got.Consolidated = nil
	want := option.Options{
		Scenarios: []option.Scenario{{
			Name: "default", Executor: option.SharedIterations, Exec: "default", GracefulStop: 30 * time.Second,
			VUs: 1, Iterations: 1, MaxDuration: 10 * time.Minute,
			StartVUs: 1, GracefulRampDown: 30 * time.Second, TimeUnit: time.Second,
		}},
		Thresholds: map[string][]option.Threshold{}, SetupTimeout: time.Minute, TeardownTimeout: time.Minute,
		HandleSummaryTimeout: 2 * time.Minute, SummaryTrendStats: []string{"avg", "min", "med", "max", "p(90)", "p(95)"},
		Batch: 20, BatchPerHost: 6, MaxRedirects: 10, UserAgent: "k6lite",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestShortcutsMeanTheirDocumentedExecutor(t *testing.T) {
	t.Parallel()
	five, thirty, many := 5, option.Duration(30*time.Second), 50
	for _, c := range []struct {
		text string
		cli  option.CommandLine
		want string
	}{
		{`{"vus":3,"duration":"10s"}`, option.CommandLine{}, "3 looping VUs for 10s (gracefulStop 30s)"},
		{`{"duration":"10s"}`, option.CommandLine{}, "1 looping VUs for 10s (gracefulStop 30s)"},
		{`{"vus":2,"iterations":4}`, option.CommandLine{}, "4 iterations shared among 2 VUs (maxDuration 10m0s, gracefulStop 30s)"},
		{`{"iterations":4,"duration":"9s"}`, option.CommandLine{}, "4 iterations shared among 1 VUs (maxDuration 9s, gracefulStop 30s)"},
		{`{"vus":1,"stages":[{"duration":"1s","target":7},{"duration":"2s","target":0}]}`, option.CommandLine{},
			"up to 7 looping VUs for 3s over 2 stages (gracefulStop 30s)"},
		{`{"vus":3,"duration":"10s"}`, option.CommandLine{VUs: &five}, "5 looping VUs for 10s (gracefulStop 30s)"},
		{`{"vus":3,"duration":"10s"}`, option.CommandLine{Duration: &thirty}, "3 looping VUs for 30s (gracefulStop 30s)"},
		{`{"vus":3,"duration":"10s"}`, option.CommandLine{Iterations: &many}, "50 iterations shared among 3 VUs (maxDuration 10m0s, gracefulStop 30s)"},
		{`{"scenarios":{"x":{"executor":"constant-vus","duration":"1s"}}}`, option.CommandLine{Duration: &thirty, VUs: &five},
			"5 looping VUs for 30s (gracefulStop 30s)"},
	} {
		o := parse(t, c.text, c.cli)
		if got := o.Scenarios[0].Describe(); got != c.want || len(o.Scenarios) != 1 {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestEveryFieldOfEveryExecutor(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"scenarios":{
		"a":{"executor":"constant-arrival-rate","rate":30,"timeUnit":"1m","duration":"30s","preAllocatedVUs":2,"maxVUs":50,
			"startTime":"5s","gracefulStop":"1s","exec":"f","env":{"A":"b"},"tags":{"t":"u"}},
		"b":{"executor":"ramping-arrival-rate","startRate":300,"timeUnit":"1m","preAllocatedVUs":5,
			"stages":[{"target":600,"duration":"2m"}]},
		"c":{"executor":"ramping-vus","startVUs":0,"stages":[{"target":10,"duration":"20s"}],"gracefulRampDown":"0s"},
		"d":{"executor":"per-vu-iterations","vus":10,"iterations":20,"maxDuration":"30s"},
		"e":{"executor":"shared-iterations","vus":10,"iterations":200},
		"f":{"executor":"constant-vus","vus":10,"duration":"30s"}}}`, option.CommandLine{})
	if n := len(o.Scenarios); n != 6 {
		t.Fatalf("got %d scenarios", n)
	}
	want := option.Scenario{
		Name: "a", Executor: option.ConstantArrivalRate, Exec: "f", StartTime: 5 * time.Second, GracefulStop: time.Second,
		Env: map[string]string{"A": "b"}, Tags: map[string]string{"t": "u"}, VUs: 1, Iterations: 1,
		MaxDuration: 10 * time.Minute, Duration: 30 * time.Second, StartVUs: 1, GracefulRampDown: 30 * time.Second,
		Rate: 30, TimeUnit: time.Minute, PreAllocatedVUs: 2, MaxVUs: 50,
	}
	if diff := cmp.Diff(want, o.Scenarios[0]); diff != "" {
		t.Error(diff)
	}
	if b := o.Scenarios[1]; b.Rate != 300 || b.MaxVUs != 5 || b.Planned() != 2*time.Minute {
		t.Errorf("ramping-arrival-rate: %+v", b)
	}
	if c := o.Scenarios[2]; c.StartVUs != 0 || c.GracefulRampDown != 0 || c.MaxActive() != 10 {
		t.Errorf("ramping-vus: %+v", c)
	}
}

func TestNothingIsIgnored(t *testing.T) {
	t.Parallel()
	for text, complaint := range map[string]string{
		`[]`:                          "object",
		`{"vuss":1}`:                  "no such option",
		`{"VUs":1,"duration":"1s"}`:   "no such option",
		`{"hosts":{"a":"b"}}`:         "not supported",
		`{"rps":5}`:                   "not supported",
		`{"tlsAuth":[]}`:              "not supported",
		`{"noCookiesReset":true}`:     "not supported",
		`{"systemTags":["url"]}`:      "not supported",
		`{"vus":3}`:                   "needs duration",
		`{"vus":1.5,"duration":"1s"}`: "1.5",
		`{"vus":"3","duration":"1s"}`: "string",
		`{"vus":0,"duration":"1s"}`:   "at least 1",
		`{"duration":10}`:             "duration string",
		`{"duration":"-1s"}`:          "not a duration",
		`{"duration":"1 minute"}`:     "not a duration",
		`{"vus":10,"iterations":5}`:   "fewer than vus",
		`{"stages":[]}`:               "at least one",
		`{"stages":[{"target":1}]}`:   "needs a duration",
		`{"stages":[{"target":1,"duration":"1s","x":1}]}`:           "no field \"x\"",
		`{"stages":[{"target":-1,"duration":"1s"}]}`:                "at least 0",
		`{"stages":[{"target":1,"duration":"1s"}],"duration":"1s"}`: "cannot be combined",
		`{"scenarios":{}}`: "is empty",
		`{"scenarios":{"a":{"executor":"constant-vus","duration":"1s"}},"vus":1}`: "cannot be combined",
		`{"scenarios":{"a":{}}}`:                                                                                           "needs an executor",
		`{"scenarios":{"a":{"executor":"externally-controlled"}}}`:                                                         "there is no",
		`{"scenarios":{"a":{"executor":"constant-vus","duration":"1s","rate":5}}}`:                                         "no such field",
		`{"scenarios":{"a":{"executor":"constant-vus","duration":"1s","options":{}}}}`:                                     "no such field",
		`{"scenarios":{"a":{"executor":"constant-vus"}}}`:                                                                  "duration",
		`{"scenarios":{"a":{"executor":"constant-arrival-rate","rate":1,"duration":"1s"}}}`:                                "preAllocatedVUs",
		`{"scenarios":{"a":{"executor":"constant-arrival-rate","duration":"1s","preAllocatedVUs":1}}}`:                     "rate",
		`{"scenarios":{"a":{"executor":"constant-arrival-rate","rate":1.5,"duration":"1s","preAllocatedVUs":1}}}`:          "1.5",
		`{"scenarios":{"a":{"executor":"constant-arrival-rate","rate":1,"duration":"1s","preAllocatedVUs":2,"maxVUs":1}}}`: "maxVUs",
		`{"scenarios":{"a":{"executor":"ramping-arrival-rate","preAllocatedVUs":2}}}`:                                      "stages",
		`{"scenarios":{"a":{"executor":"per-vu-iterations","vus":50000}}}`:                                                 "limit",
		`{"thresholds":{"a":[]}}`:                       "no expression",
		`{"thresholds":{"a":"count>1"}}`:                "thresholds",
		`{"thresholds":{"a":[{"treshold":"count>1"}]}}`: "no field",
		`{"thresholds":{"a":[5]}}`:                      "string or an object",
		`{"setupTimeout":"0s"}`:                         "positive",
		`{"batch":0}`:                                   "at least 1",
		`{"summaryTimeUnit":"h"}`:                       "none of",
		`{"tags":{"a":1}}`:                              "tags",
	} {
		_, err := option.Parse([]byte(text), option.CommandLine{})
		if err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s: got %v, want a complaint about %q", text, err, complaint)
		}
	}
}

func TestNullIsTheSameAsNotSet(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"rps":null,"vus":null,"scenarios":{"a":{"executor":"constant-vus","duration":"1s","vus":null,"env":null}}}`, option.CommandLine{})
	if s := o.Scenarios[0]; s.VUs != 1 || s.Duration != time.Second {
		t.Errorf("got %+v", s)
	}
}

func TestBothFormsOfThresholds(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"thresholds":{"m":["count>1",{"threshold":"count<5","abortOnFail":true,"delayAbortEval":"10s"}]}}`, option.CommandLine{})
	want := []option.Threshold{{Expression: "count>1"}, {Expression: "count<5", AbortOnFail: true, DelayAbortEval: 10 * time.Second}}
	if diff := cmp.Diff(want, o.Thresholds["m"]); diff != "" {
		t.Error(diff)
	}
}

func TestConsolidatedOptionsAsTheScriptSeesThem(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"stages":[{"duration":"5s","target":100}],"throw":true}`, option.CommandLine{})
	var seen struct {
		Paused    *bool
		Throw     bool
		Scenarios map[string]struct {
			Executor string
			Stages   []struct {
				Duration string
				Target   int
			}
		}
	}
	if err := json.Unmarshal(o.Consolidated, &seen); err != nil {
		t.Fatal(err)
	}
	d := seen.Scenarios["default"]
	if seen.Paused != nil || !seen.Throw || d.Executor != "ramping-vus" || d.Stages[0].Target != 100 || d.Stages[0].Duration != "5s" {
		t.Errorf("got %s", o.Consolidated)
	}
}
