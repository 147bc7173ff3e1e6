package bench_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/bench"
)

const report = `{"script":"hot-sku","metrics":{
	"granted":{"type":"counter","values":{"count":1000,"rate":25}},
	"refused":{"type":"counter","values":{"count":119000,"rate":2975}},
	"dropped_iterations":{"type":"counter","values":{"count":0,"rate":0},"thresholds":{"count==0":{"ok":true}}},
	"http_reqs":{"type":"counter","values":{"count":124000,"rate":3100.4}},
	"http_req_duration{name:POST /v1/deductions}":{"type":"trend","values":{"med":1.5,"p(95)":2.25,"p(99)":3,"p(99.9)":10,"max":20},"thresholds":{"p(99)<100":{"ok":true}}}
}}`

func TestScriptRow(t *testing.T) {
	t.Parallel()
	cost := bench.Cost{Generator: 40 * time.Second, Service: 30 * time.Second, Redis: 10 * time.Second, Postgres: 20 * time.Second}
	got, err := bench.ScriptRow([]byte(report), cost)
	want := "| hot-sku | 1,000 granted, 119,000 refused | 3,100 | 1.50 | 2.25 | 3.00 | 10.00 | 100 s: 40 %, 30 %, 10 %, 20 % |\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	failed := strings.NewReplacer(`"count":0`, `"count":7`, `"count==0":{"ok":true}`, `"count==0":{"ok":false}`).Replace(report)
	got, err = bench.ScriptRow([]byte(failed), bench.Cost{})
	want = "| **failed:** dropped_iterations count==0, 1,000 granted, 119,000 refused, 7 dropped |"
	if err != nil || !strings.Contains(got, want) || !strings.HasSuffix(got, "| not known here |\n") {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, text := range []string{"", "{}", `{"script":"x","metrics":{}}`} {
		if row, err := bench.ScriptRow([]byte(text), cost); err == nil {
			t.Errorf("%q became %q", text, row)
		}
	}
}
