package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAccessLogIsWrittenUnlessTurnedOff(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	for setting, want := range map[string]bool{"true": true, "false": false} {
		s.env = append(s.env, "HOLDFAST_ACCESS_LOG="+setting)
		i := s.open(t)
		a, err := i.api().send(t.Context(), request{method: http.MethodGet, path: "/v1/stock"})
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%+v, %v", a, err)
		}
		if err := i.stop(); err != nil {
			t.Fatal(err)
		}
		i.mu.Lock()
		got := strings.Contains(i.log.String(), `"msg":"request"`)
		i.mu.Unlock()
		if got != want {
			t.Errorf("access log %s: a line for the request: %v", setting, got)
		}
	}
}

func TestServeRefusesImpossibleValues(t *testing.T) {
	t.Parallel()
	for flag, name := range map[string]string{
		"--request-deadline=1ms": "HOLDFAST_REQUEST_DEADLINE", "--ledger-sessions=0": "HOLDFAST_LEDGER_SESSIONS",
		"--sweep=0s": "HOLDFAST_SWEEP", "--gate-ample=0": "HOLDFAST_GATE_AMPLE",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"serve", "--database-url=postgres://nowhere", "--tokens-file=none", flag}, &out, &errs)
		if code != exitNo || !strings.Contains(errs.String(), name) {
			t.Errorf("%s: exit code %d, %q", flag, code, errs.String())
		}
	}
}

// A process that is told to stop answers everything it has begun: what is in the ledger was acknowledged.
func TestStopLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	const units = 100_000
	s := newShop(t, "")
	stopped, other := s.open(t), s.open(t)
	stopped.stockUp(t, "A", units)
	var acknowledged, wrong atomic.Int64
	var buyers sync.WaitGroup
	enough := make(chan struct{})
	for b := range 16 {
		buyers.Go(func() {
			api := stopped.api()
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d-%d", b, n)
				a, err := api.send(t.Context(), request{method: http.MethodPost, path: "/v1/deductions", key: id, body: map[string]any{
					"order_id": id, "lines": []map[string]any{{"sku": "A", "quantity": 1}},
				}})
				if err != nil {
					return // it listens no more
				}
				if a.status != http.StatusCreated {
					wrong.Add(1)
				} else if acknowledged.Add(1) == 500 {
					close(enough)
				}
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(serviceLimit):
		t.Fatal("too few deductions")
	}
	if err := stopped.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	buyers.Wait()
	if wrong.Load() != 0 {
		t.Errorf("%d answers were no success", wrong.Load())
	}
	if got, want := other.item(t, "A").OnHand, units-acknowledged.Load(); got != want {
		t.Errorf("%d on hand, want %d as acknowledged", got, want)
	}
}
