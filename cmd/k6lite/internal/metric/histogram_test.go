package metric_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

// exact is the percentile by its definition: linear interpolation between the two ranks around p/100·(n−1).
func exact(sorted []float64, p float64) float64 {
	place := p / 100 * float64(len(sorted)-1)
	low := int(place)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (place-float64(low))*(sorted[low+1]-sorted[low])
}

func sinkOf(t *testing.T, kind metric.Kind, values ...float64) *metric.Sink {
	t.Helper()
	r := metric.NewRegistry()
	m, err := r.Declare("m", kind, metric.Default)
	if err != nil {
		t.Fatal(err)
	}
	r.Freeze()
	for i, v := range values {
		if i%3 == 0 { // several recorders, so that reading has to merge
			r.Recorder().Add(nil, metric.Sample{Metric: m, Value: v})
			continue
		}
		rec := r.Recorder()
		rec.Add(nil, metric.Sample{Metric: m, Value: v})
	}
	return r.Read(m)
}

func TestPercentilesAgainstExactReference(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	distributions := map[string]func() float64{
		"uniform":     func() float64 { return rng.Float64() * 1000 },
		"exponential": func() float64 { return rng.ExpFloat64() * 20 },
		"lognormal":   func() float64 { return math.Exp(rng.NormFloat64() * 3) },
		"bimodal": func() float64 {
			if rng.IntN(100) == 0 {
				return 900 + rng.Float64()*100
			}
			return 1 + rng.Float64()
		},
		"tiny":     func() float64 { return rng.Float64() * 1e-9 },
		"integers": func() float64 { return float64(rng.IntN(50)) },
		"mixed":    func() float64 { return rng.NormFloat64() * 100 },
	}
	for name, draw := range distributions {
		for _, n := range []int{1, 2, 3, 10, 1000, 5000} {
			values := make([]float64, n)
			for i := range values {
				values[i] = draw()
			}
			sink := sinkOf(t, metric.Trend, values...)
			slices.Sort(values)
			for _, p := range []float64{0, 1, 25, 50, 90, 95, 99, 99.9, 99.99, 100} {
				place := p / 100 * float64(n-1)
				low, high := values[int(place)], values[min(int(place)+1, n-1)]
				allowed := metric.RelativeError * max(math.Abs(low), math.Abs(high)) * 1.000001
				got, want := sink.Percentile(p), exact(values, p)
				if math.Abs(got-want) > allowed {
					t.Errorf("%s, n=%d, p%v: got %v, exact %v, off by %v, allowed %v",
						name, n, p, got, want, math.Abs(got-want), allowed)
				}
			}
		}
	}
}

func TestBucketErrorIsBoundedForEveryMagnitude(t *testing.T) {
	t.Parallel()
	for exp := -1000; exp <= 1000; exp += 50 {
		for _, mantissa := range []float64{1, 1.001, 1.0039, 1.25, 1.5, 1.9999} {
			v := math.Ldexp(mantissa, exp)
			for _, signed := range []float64{v, -v} {
				h := new(metric.Histogram)
				h.Add(signed)
				if off := math.Abs(h.At(0)-signed) / v; off > metric.RelativeError {
					t.Errorf("%g came back as %g, relative error %g", signed, h.At(0), off)
				}
			}
		}
	}
}

func TestHistogramOrdersSignsAndZero(t *testing.T) {
	t.Parallel()
	h := new(metric.Histogram)
	for _, v := range []float64{8, -4, 0, -16, 2, 0} {
		h.Add(v)
	}
	want := []float64{-16, -4, 0, 0, 2, 8}
	for rank, w := range want {
		if got := h.At(uint64(rank)); math.Abs(got-w) > math.Abs(w)*metric.RelativeError {
			t.Errorf("rank %d: got %v, want %v", rank, got, w)
		}
	}
	if got := h.At(99); math.Abs(got-8) > 8*metric.RelativeError {
		t.Errorf("a rank beyond the end: got %v, want the last value, 8", got)
	}
}

func TestMergeIsTheSameAsAddingEverythingToOne(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	whole, left, right := new(metric.Histogram), new(metric.Histogram), new(metric.Histogram)
	for i := range 1000 {
		v := math.Exp(rng.NormFloat64()*5) * float64(1-2*(i%2))
		whole.Add(v)
		if rng.IntN(2) == 0 {
			left.Add(v)
		} else {
			right.Add(v)
		}
	}
	left.Merge(right)
	for rank := range uint64(1000) {
		if whole.At(rank) != left.At(rank) {
			t.Fatalf("rank %d: %v alone, %v merged", rank, whole.At(rank), left.At(rank))
		}
	}
}

func TestExactFiguresOfATrend(t *testing.T) {
	t.Parallel()
	s := sinkOf(t, metric.Trend, 3, 1, 2, 10)
	for stat, want := range map[string]float64{"avg": 4, "min": 1, "max": 10, "count": 4, "p(0)": 1, "p(100)": 10} {
		if got, err := s.Stat(stat); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want exactly %v", stat, got, err, want)
		}
	}
	if got, _ := s.Stat("med"); math.Abs(got-2.5) > 3*metric.RelativeError { // between 2 and 3
		t.Errorf("med: got %v, want 2.5", got)
	}
	for _, wrong := range []string{"p95", "p(101)", "p(-1)", "p(x)", "p(NaN)", "median", ""} {
		if err := metric.CheckStat(wrong); err == nil {
			t.Errorf("statistic %q was accepted", wrong)
		}
	}
}

func BenchmarkHistogramAdd(b *testing.B) {
	h := new(metric.Histogram)
	v := 1.0
	for b.Loop() {
		h.Add(v)
		if v *= 1.01; v > 1e6 {
			v = 1e-3
		}
	}
}

func BenchmarkRecorderAdd(b *testing.B) {
	r := metric.NewRegistry()
	builtin, err := metric.DeclareBuiltin(r)
	if err != nil {
		b.Fatal(err)
	}
	r.Freeze()
	rec := r.Recorder()
	tags := &metric.Tags{Own: []metric.Tag{{Key: "name", Value: "x"}, {Key: "expected_response", Value: "true"}}}
	for b.Loop() {
		rec.Add(tags, metric.Sample{Metric: builtin.HTTPReqDuration, Value: 1.5}, metric.Sample{Metric: builtin.HTTPReqs, Value: 1})
	}
}
