package schedule_test

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/schedule"
)

// starts lists all start times of a plan in seconds.
func starts(plan option.Scenario) []float64 {
	if plan.TimeUnit == 0 {
		plan.TimeUnit = time.Second
	}
	p := schedule.NewPace(&plan)
	var all []float64
	for n := int64(0); ; n++ {
		at, ok := p.Start(n)
		if !ok {
			return all
		}
		all = append(all, at.Seconds())
	}
}

func TestConstantRateBeginsEvenly(t *testing.T) {
	t.Parallel()
	got := starts(option.Scenario{Executor: option.ConstantArrivalRate, Rate: 10, Duration: time.Second})
	if len(got) != 10 {
		t.Fatalf("10 a second for a second: %d starts", len(got))
	}
	for i, at := range got {
		if math.Abs(at-float64(i)/10) > 1e-6 {
			t.Errorf("start %d: at %v s, want %v s", i, at, float64(i)/10)
		}
	}
	for _, c := range []struct {
		rate     int
		unit     time.Duration
		duration time.Duration
		want     int
	}{
		{30, time.Second, 30 * time.Second, 900},
		{10, time.Minute, 2 * time.Minute, 20},
		{7, time.Second, 3 * time.Second, 21},
		{10_000, time.Second, 10 * time.Second, 100_000},
		{1, time.Minute, time.Second, 1},
		{333, 100 * time.Millisecond, 3 * time.Second, 9990},
	} {
		plan := option.Scenario{Executor: option.ConstantArrivalRate, Rate: c.rate, TimeUnit: c.unit, Duration: c.duration}
		if got := len(starts(plan)); got != c.want {
			t.Errorf("%d per %s for %s: %d starts, want %d", c.rate, c.unit, c.duration, got, c.want)
		}
	}
}

func TestRampingRateFollowsTheAreaUnderTheRate(t *testing.T) {
	t.Parallel()
	// From 0 to 10 a second in 10 s: N(t) = t²/2, so the n-th begins at √(2n); then 10 a second for 2 s; then a jump to
	// 2 a second for 1 s; then down to 0 in 2 s: N = 2u − u²/2.
	got := starts(option.Scenario{Executor: option.RampingArrivalRate, Rate: 0, Stages: []option.Stage{
		{Duration: 10 * time.Second, Target: 10}, {Duration: 2 * time.Second, Target: 10},
		{Duration: 0, Target: 2}, {Duration: time.Second, Target: 2}, {Duration: 2 * time.Second, Target: 0},
	}})
	if len(got) != 50+20+2+2 {
		t.Fatalf("%d starts, want 74", len(got))
	}
	for n, at := range got {
		var want float64
		switch {
		case n < 50:
			want = math.Sqrt(2 * float64(n))
		case n < 70:
			want = 10 + float64(n-50)/10
		case n < 72:
			want = 12 + float64(n-70)/2
		default:
			want = 13 + 2 - math.Sqrt(4-2*float64(n-72))
		}
		if math.Abs(at-want) > 1e-6 {
			t.Errorf("start %d: at %v s, want %v s", n, at, want)
		}
	}
}

func TestRateOfZeroBeginsNothing(t *testing.T) {
	t.Parallel()
	got := starts(option.Scenario{Executor: option.RampingArrivalRate, Stages: []option.Stage{
		{Duration: 5 * time.Second, Target: 0}, {Duration: 0, Target: 4}, {Duration: time.Second, Target: 4},
	}})
	if len(got) != 4 || got[0] < 5 {
		t.Errorf("got %v, want 4 starts after the fifth second", got)
	}
}

// The example of the k6 documentation: 300, 600 and 60 a minute.
func TestDocumentedExampleOfARampingRate(t *testing.T) {
	t.Parallel()
	got := starts(option.Scenario{Executor: option.RampingArrivalRate, Rate: 300, TimeUnit: time.Minute, Stages: []option.Stage{
		{Duration: time.Minute, Target: 300}, {Duration: 2 * time.Minute, Target: 600},
		{Duration: 4 * time.Minute, Target: 600}, {Duration: 2 * time.Minute, Target: 60},
	}})
	if want := 300 + 900 + 2400 + 660; len(got) != want {
		t.Errorf("%d starts, want %d", len(got), want)
	}
	for i := 1; i < len(got); i++ {
		if got[i] <= got[i-1] {
			t.Fatalf("start %d at %v is not after %v", i, got[i], got[i-1])
		}
	}
}

func TestStepsOfARampAreLinear(t *testing.T) {
	t.Parallel()
	// The documented example: 0 to 10 in 20 s, 10 to 0 in 10 s.
	got := schedule.Steps(0, []option.Stage{{Duration: 20 * time.Second, Target: 10}, {Duration: 10 * time.Second, Target: 0}})
	if len(got) != 21 {
		t.Fatalf("got %d steps", len(got))
	}
	for i, s := range got {
		want := schedule.Step{time.Duration(2*i) * time.Second, i}
		if i > 10 {
			want = schedule.Step{time.Duration(20+i-10) * time.Second, 20 - i}
		}
		if s != want {
			t.Errorf("step %d: got %+v, want %+v", i, s, want)
		}
	}
	flat := schedule.Steps(3, []option.Stage{{Duration: time.Second, Target: 3}, {Duration: 0, Target: 5}})
	want := []schedule.Step{{0, 3}, {time.Second, 4}, {time.Second, 5}}
	if len(flat) != 3 || flat[0] != want[0] || flat[1] != want[1] || flat[2] != want[2] {
		t.Errorf("got %+v, want %+v", flat, want)
	}
}
