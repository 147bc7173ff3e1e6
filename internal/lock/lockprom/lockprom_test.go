package lockprom_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/lockprom"
)

func TestEventsBecomeSeries(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	observe, err := lockprom.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range lock.Kinds() {
		observe(lock.Event{
			Kind: kind, Backend: "redis", Key: "k", Owner: "o",
			Wait: time.Second, Hold: 2 * time.Second, Margin: 3 * time.Second, Late: 4 * time.Second,
		})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if name := label.GetName(); name != "backend" && name != "event" {
					t.Errorf("%s has a label %s", family.GetName(), name)
				}
			}
			got[family.GetName()] += metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum()
		}
	}
	want := map[string]float64{
		"holdfast_lock_events_total":           float64(len(lock.Kinds())),
		"holdfast_lock_wait_seconds":           1,
		"holdfast_lock_hold_seconds":           2 + 2, // released and lost
		"holdfast_lock_renewal_margin_seconds": 3,
		"holdfast_lock_late_seconds":           4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := lockprom.New(registry); err == nil {
		t.Error("the same registry took the metrics twice")
	}
}
