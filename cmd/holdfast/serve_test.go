package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

func TestAccessLogIsWrittenUnlessTurnedOff(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]bool{"true": true, "false": false} {
		s := newShop(t, "")
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
