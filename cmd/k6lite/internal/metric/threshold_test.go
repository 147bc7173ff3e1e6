package metric_test

import (
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

func TestThresholdsByHand(t *testing.T) {
	t.Parallel()
	trend := []float64{10, 20, 30, 40, 50}
	for _, c := range []struct {
		source string
		kind   metric.Kind
		values []float64
		ok     bool
	}{
		{"count==3", metric.Counter, []float64{1, 1, 1}, true},
		{"count == 3", metric.Counter, []float64{2, 1}, true},
		{"count===3", metric.Counter, []float64{2, 2}, false},
		{"count<100", metric.Counter, nil, true},
		{"count>0", metric.Counter, nil, false},
		{"count!=0", metric.Counter, nil, false},
		{"rate>=1.5", metric.Counter, []float64{1, 2}, true}, // over two seconds
		{"rate>1.5", metric.Counter, []float64{1, 2}, false},
		{"value<5", metric.Gauge, []float64{9, 4}, true},
		{"value<5", metric.Gauge, []float64{4, 9}, false},
		{"rate<0.5", metric.Rate, []float64{0, 0, 1}, true},
		{"rate<=0.5", metric.Rate, []float64{0, 1}, true},
		{"rate<0.5", metric.Rate, []float64{0, 1}, false},
		{"rate==0", metric.Rate, []float64{0, 0}, true},
		{"rate==0", metric.Rate, nil, false}, // nothing was measured
		{"avg<31", metric.Trend, trend, true},
		{"avg<30", metric.Trend, trend, false},
		{"min>=10", metric.Trend, trend, true},
		{"max<=50", metric.Trend, trend, true},
		{"max<50", metric.Trend, trend, false},
		{"med<30.1", metric.Trend, trend, true},
		{"med>29.9", metric.Trend, trend, true},
		{"p(90)<46.1", metric.Trend, trend, true}, // 46 exactly
		{"p(90)<45.9", metric.Trend, trend, false},
		{"p(99.9) < 50", metric.Trend, trend, true}, // 49.96
		{"p(95)<1", metric.Trend, nil, false},       // nothing was measured
		{"avg<-1", metric.Trend, []float64{-2}, true},
		{"avg<1e2", metric.Trend, trend, true},
	} {
		threshold, err := metric.ParseThreshold(c.source, c.kind)
		if err != nil {
			t.Errorf("%q on a %s: %v", c.source, c.kind, err)
			continue
		}
		sink := new(metric.Sink)
		if c.values != nil {
			sink = sinkOf(t, c.kind, c.values...)
		}
		v := threshold.Judge(c.kind, sink, 2*time.Second)
		if v.OK != c.ok || v.Measured != (c.values != nil) {
			t.Errorf("%q on a %s of %v: got %+v, want ok=%t", c.source, c.kind, c.values, v, c.ok)
		}
	}
}

func TestThresholdsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for source, kind := range map[string]metric.Kind{
		"p(95)<200 ":     metric.Counter,
		"count<1":        metric.Trend,
		"rate<1":         metric.Gauge,
		"value<1":        metric.Rate,
		"p(101)<1":       metric.Trend,
		"p(NaN)<1":       metric.Trend,
		"avg":            metric.Trend,
		"avg<":           metric.Trend,
		"avg<fast":       metric.Trend,
		"avg<NaN":        metric.Trend,
		"avg=>5":         metric.Trend,
		"avg<5 && max<9": metric.Trend,
		"":               metric.Trend,
	} {
		if _, err := metric.ParseThreshold(source, kind); err == nil {
			t.Errorf("%q on a %s was accepted", source, kind)
		}
	}
}
