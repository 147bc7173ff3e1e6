package bench_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/bench"
)

// exact is the smallest of the sorted durations that p percent of them do not exceed.
func exact(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(float64(len(sorted))*p/100 - 1e-9))
	return sorted[max(rank, 1)-1]
}

func TestPercentilesAreWithinTheirError(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	shapes := map[string]func() time.Duration{
		"from 1 ns to 100 s, by order of magnitude": func() time.Duration { return time.Duration(math.Exp(random.Float64() * math.Log(100e9))) },
		"evenly up to 10 ms":                        func() time.Duration { return time.Duration(random.Int64N(int64(10 * time.Millisecond))) },
		"up to 300 ns, each its own bucket or two":  func() time.Duration { return time.Duration(random.Int64N(300)) },
		"powers of two and their neighbours":        func() time.Duration { return time.Duration(int64(1)<<random.IntN(37) + random.Int64N(3) - 1) },
		"always the same":                           func() time.Duration { return 1234567 },
	}
	for name, next := range shapes {
		for _, count := range []int{1, 2, 3, 99, 1000, 20000} {
			h := &bench.Histogram{}
			durations := make([]time.Duration, count)
			for i := range durations {
				durations[i] = next()
				h.Record(durations[i])
			}
			slices.Sort(durations)
			for _, p := range []float64{0, 1, 50, 90, 99, 99.9, 99.99, 100} {
				want, got := exact(durations, p), h.Percentile(p)
				if got < want || float64(got) > float64(want)*(1+1.0/128) {
					t.Errorf("%s: p%v of %d is %d ns, exactly it is %d", name, p, count, got, want)
				}
			}
			if h.Max() != durations[count-1] || h.Count() != int64(count) {
				t.Errorf("%s: %d durations up to %d, want %d up to %d", name, h.Count(), h.Max(), count, durations[count-1])
			}
		}
	}
}

func TestHistogramTakesAnyDuration(t *testing.T) {
	t.Parallel()
	h := &bench.Histogram{}
	if got := h.Percentile(50); got != 0 || h.Max() != 0 || h.Count() != 0 {
		t.Errorf("an empty histogram has the median %v and the maximum %v", got, h.Max())
	}
	for _, d := range []time.Duration{-1, 0, math.MaxInt64} {
		h.Record(d)
	}
	if h.Count() != 3 || h.Percentile(50) != 0 || h.Max() != math.MaxInt64 {
		t.Errorf("count %d, median %v, maximum %v", h.Count(), h.Percentile(50), h.Max())
	}
}
