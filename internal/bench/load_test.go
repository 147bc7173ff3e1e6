package bench_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/bench"
)

// serve runs handle as a service under load until the test ends.
func serve(t *testing.T, handle http.HandlerFunc) bench.Target {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return bench.Target{Addrs: []string{server.Listener.Addr().String()}, Token: "secret"}
}

// take answers as a service does that takes what is asked for.
func take(w http.ResponseWriter, r *http.Request) {
	var order struct {
		OrderID string `json:"order_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"00000000-0000-0000-0000-000000000000","order_id":%q}`, order.OrderID)
}

// TestABatchIsManyDeductions: each under its own key, and counted as one.
func TestABatchIsManyDeductions(t *testing.T) {
	t.Parallel()
	const size = 7
	var mu sync.Mutex
	keys := map[string]int{}
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var batch struct {
			Deductions []struct {
				Key       string `json:"idempotency_key"`
				Deduction struct {
					OrderID string `json:"order_id"`
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil || r.URL.Path != "/v1/deductions/batch" || len(batch.Deductions) != size {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer := ""
		mu.Lock()
		defer mu.Unlock()
		for _, d := range batch.Deductions {
			if keys[d.Key]++; d.Key != d.Deduction.OrderID {
				t.Errorf("order %s has key %s", d.Deduction.OrderID, d.Key)
			}
			answer += `{"status":201},`
		}
		fmt.Fprintf(w, `{"results":[%s]}`, strings.TrimSuffix(answer, ","))
	})
	got := load(t, target, bench.NewWorkload(bench.Shape{Items: 3, Lines: 1, Stock: bench.Plenty, Batch: size}), 4, bench.Pace{For: 100 * time.Millisecond})
	if got.Wrong != 0 || got.Requests == 0 || got.Taken != size*got.Requests || len(keys) != int(got.Taken) {
		t.Errorf("%+v, %d keys", got, len(keys))
	}
	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"results":[{"status":201},{"status":409}]}`)
	})
	got = load(t, refusing, bench.NewWorkload(bench.Shape{Items: 1, Lines: 1, Stock: bench.Plenty, Batch: 2}), 1, bench.Pace{For: 20 * time.Millisecond})
	if got.Wrong == 0 || got.Taken != 0 {
		t.Errorf("a refusal passed: %+v", got)
	}
}

func load(t *testing.T, target bench.Target, w *bench.Workload, clients int, pace bench.Pace) *bench.Load {
	t.Helper()
	g, err := bench.Dial(t.Context(), target, clients)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	return g.Run(t.Context(), w, pace)
}

func TestRequestsAreWhatTheContractAsksFor(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys := map[string]int{}
	var wrong atomic.Pointer[string]
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		key := r.Header.Get("Idempotency-Key")
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/deductions" || r.Header.Get("Authorization") != "Bearer secret" ||
			r.Header.Get("Content-Type") != "application/json" || !strings.Contains(string(text), `"order_id":"`+key+`"`) {
			request := fmt.Sprint(r.Method, r.URL, r.Header, string(text), err)
			wrong.CompareAndSwap(nil, &request)
		}
		mu.Lock()
		keys[key]++
		mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		take(w, r)
	})
	got := load(t, target, bench.NewWorkload(bench.Shape{Items: 3, Lines: 2, Stock: bench.Plenty}), 4, bench.Pace{For: 100 * time.Millisecond})
	if request := wrong.Load(); request != nil {
		t.Errorf("a request was %s", *request)
	}
	if got.Wrong != 0 {
		t.Errorf("wrong: %v", got.Reasons)
	}
	if got.Requests == 0 || got.Requests != int64(len(keys)) || got.Taken != got.Requests || got.Latency.Count() != got.Requests {
		t.Errorf("the generator counts %d requests, %d taken, %d latencies; the service saw %d keys", got.Requests, got.Taken, got.Latency.Count(), len(keys))
	}
	for key, n := range keys {
		if n > 1 {
			t.Errorf("key %s was used %d times", key, n)
		}
	}
}

func TestDuplicatesAreSent(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, again := seen.LoadOrStore(r.Header.Get("Idempotency-Key"), true); again {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		take(w, r)
	})
	got := load(t, target, bench.NewWorkload(bench.Shape{Items: 1, Lines: 1, Stock: bench.Plenty, Duplicates: 0.25}), 8, bench.Pace{For: 300 * time.Millisecond})
	if got.Wrong != 0 || got.Taken+got.Replays != got.Requests {
		t.Errorf("%d requests, %d taken, %d replays; wrong: %v", got.Requests, got.Taken, got.Replays, got.Reasons)
	}
	if share := float64(got.Replays) / float64(got.Requests); share < 0.15 || share > 0.35 {
		t.Errorf("a share of %.2f were duplicates, want about 0.25", share)
	}
}

func TestWrongAnswersAreCounted(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"another status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"another order": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"order_id":"of somebody else"}`)
		},
		"refused without need": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"type":"urn:holdfast:problem:insufficient-stock"}`)
		},
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// One request in eight goes wrong.
			var n atomic.Int64
			target := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1)%8 == 0 {
					handle(w, r)
					return
				}
				take(w, r)
			})
			got := load(t, target, bench.NewWorkload(bench.Shape{Items: 1, Lines: 1, Stock: bench.Plenty}), 2, bench.Pace{For: 100 * time.Millisecond})
			if got.Wrong == 0 || len(got.Reasons) == 0 {
				t.Errorf("%d requests, none of them wrong", got.Requests)
			}
			if sent := n.Load(); name != "no answer" && got.Wrong != sent/8 {
				t.Errorf("%d of %d answers are counted as wrong, want %d", got.Wrong, sent, sent/8)
			}
			if got.Taken != n.Load()-n.Load()/8 {
				t.Errorf("%d of %d answers are counted as taken", got.Taken, n.Load())
			}
		})
	}
}

// A service that stands still for a while must show in the percentiles, although fewer requests are sent meanwhile.
func TestOpenLoopCountsTheWaitForAStalledService(t *testing.T) {
	t.Parallel()
	const rate, lasts, stall = 500, 600 * time.Millisecond, 300 * time.Millisecond
	var n atomic.Int64
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 50 {
			time.Sleep(stall) //nolint:forbidigo // the stall that is measured
		}
		take(w, r)
	})
	got := load(t, target, bench.NewWorkload(bench.Shape{Items: 1, Lines: 1, Stock: bench.Plenty}), 1, bench.Pace{For: lasts, Rate: rate})
	if want := int64(rate * lasts.Seconds()); got.Requests != want || got.Wrong != 0 {
		t.Errorf("%d requests, want %d; wrong: %v", got.Requests, want, got.Reasons)
	}
	// 300 requests, of which the 50th waits 300 ms, and each of the 150 that were due meanwhile 2 ms less than the one before: a quarter
	// of all waits 150 ms and more. Seen from the service, one request was slow.
	if p75 := got.Latency.Percentile(75); p75 < stall/2-20*time.Millisecond {
		t.Errorf("the slowest quarter took %v or more, want about %v", p75, stall/2)
	}
}
