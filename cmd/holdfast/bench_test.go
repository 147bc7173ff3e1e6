package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/bench"
)

// benchRuns runs `holdfast bench run` and returns its JSON, what it says besides, and whether it says that all was right.
func benchRuns(t *testing.T, args ...string) (*bench.Summary, string, bool) {
	t.Helper()
	out, said, code := runBuilt(t.Context(), t, []string{"HOLDFAST_ACCESS_LOG=false"}, append([]string{"bench", "run", "--json"}, args...)...)
	summary := &bench.Summary{}
	if json.Unmarshal([]byte(out), summary) != nil {
		t.Fatalf("bench printed no JSON: %s\n%s", out, said)
	}
	return summary, said, code == exitFine
}

func TestBenchMeasuresAHotItem(t *testing.T) {
	t.Parallel()
	got, said, right := benchRuns(t, "--duration=1s", "--warmup=100ms", "--clients=16", "--duplicates=0.1", "--processes=2")
	if !right {
		t.Fatal(said)
	}
	if got.Deductions == 0 || got.Replays == 0 || len(got.Statuses) != 1 || got.Statuses[http.StatusCreated] != got.Requests {
		t.Errorf("%v deductions/s, %d replays, answers %v of %d requests", got.Deductions, got.Replays, got.Statuses, got.Requests)
	}
	if len(got.PerProcess) != 2 || got.PerProcess[0] == 0 || got.PerProcess[1] == 0 {
		t.Errorf("deductions by process: %v", got.PerProcess)
	}
	if got.Batch < 1 || got.Commit == 0 || got.GateCalls == 0 {
		t.Errorf("the service's own figures are missing: %+v", got)
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil && (got.CPU.Service == 0 || got.CPU.Postgres == 0 || got.CPU.Generator == 0) {
		t.Errorf("CPU time: %+v", got.CPU)
	}
}

func TestBenchStopsWhereStockEnds(t *testing.T) {
	t.Parallel()
	got, said, right := benchRuns(t, "--duration=1s", "--warmup=0s", "--clients=8", "--stock=4")
	if !right {
		t.Fatal(said)
	}
	if got.Statuses[http.StatusCreated] != 4 || got.Statuses[http.StatusConflict] != got.Requests-4 {
		t.Errorf("4 units, and the answers are %v", got.Statuses)
	}
}

// What is turned away is turned away politely, and nothing that was is in the ledger. How fast it goes is for `make overload` to say.
func TestBenchOverloads(t *testing.T) {
	t.Parallel()
	// It may say that this machine is too slow.
	out, said, _ := runBuilt(t.Context(), t, nil, "bench", "overload", "--json", "--for=1s", "--measure=500ms", "--at-once=32", "--deadline=20s")
	var got bench.Overload
	if json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("bench printed no JSON: %s\n%s", out, said)
	}
	if got.Capacity == 0 || got.Goodput == 0 || got.Shed == 0 || len(got.Wrong) > 0 {
		t.Errorf("%+v", got)
	}
}

// A service that answers well and keeps its stock must be found out.
func TestBenchFindsAServiceThatLies(t *testing.T) {
	t.Parallel()
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `{"on_hand": 1000000000000, "held": 0}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"00000000-0000-0000-0000-000000000000","order_id":%q}`, r.Header.Get("Idempotency-Key"))
	}))
	defer liar.Close()
	got, said, right := benchRuns(t, "--duration=100ms", "--warmup=0s", "--url="+liar.URL, "--token=any")
	if right || !strings.Contains(said, "the API says 1000000000000 on hand") || len(got.Wrong) == 0 {
		t.Errorf("it passed with %v deductions/s: %s", got.Deductions, said)
	}
}
