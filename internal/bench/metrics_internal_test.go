package bench

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetricsOfAllLabelsAndProcessesAddUp(t *testing.T) {
	t.Parallel()
	const text = `# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{code="2xx",route="GET /v1/stock/{sku}"} 3
requests_total{code="4xx",route="a b"} 4
took_seconds_bucket{le="0.1"} 2
took_seconds_sum 0.25
took_seconds_count 2
busy 1e+06
`
	got := map[string]float64{}
	for range 2 {
		if err := addMetrics(got, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]float64{"requests_total": 14, "took_seconds_sum": 0.5, "took_seconds_count": 4, "busy": 2e6}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if err := addMetrics(got, strings.NewReader("busy much\n")); err == nil {
		t.Error("a value that is no number was read")
	}
}
