package job_test

import (
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/job"
)

func parse(t testing.TB, s string) job.Schedule {
	t.Helper()
	schedule, err := job.ParseSchedule(s)
	if err != nil {
		t.Fatal(err)
	}
	return schedule
}

func TestSchedulesAreRead(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"every 10ms", "every 24h0m0s", "10 0 * * *", "*/5 8-18 * * 1-5", "0 0 29 2 *"} {
		if got := parse(t, s).String(); got != s {
			t.Errorf("%q is read as %q", s, got)
		}
	}
	if !parse(t, " ").Never() {
		t.Error("nothing is a schedule")
	}
	for _, s := range []string{"every", "every x", "every 1ms", "every -1s", "* * * *", "* * * * * *", "61 * * * *", "@daily", "x"} {
		if _, err := job.ParseSchedule(s); err == nil {
			t.Errorf("%q is read", s)
		}
	}
}

// Ticks are compared with all minutes around them, one by one.
func TestTicksOfCronExpressions(t *testing.T) {
	t.Parallel()
	start := time.Date(2028, 2, 28, 21, 50, 0, 0, time.UTC) // before a leap day
	const day = 24 * 60
	clock := func(m time.Time, hour, minute int) bool { return m.Hour() == hour && m.Minute() == minute }
	for s, test := range map[string]struct {
		minutes int // to compare: over both ends of the leap day, or until there are some ticks
		due     func(minute time.Time) bool
	}{
		"* * * * *":      {day * 9 / 8, func(time.Time) bool { return true }},
		"*/15 * * * *":   {5 * day, func(m time.Time) bool { return m.Minute()%15 == 0 }},
		"10 0 * * *":     {5 * day, func(m time.Time) bool { return clock(m, 0, 10) }},
		"59 23 * * *":    {5 * day, func(m time.Time) bool { return clock(m, 23, 59) }},
		"0 22 28,29 2 *": {5 * day, func(m time.Time) bool { return clock(m, 22, 0) && m.Month() == time.February && m.Day() >= 28 }},
		"30 5 * * 1":     {35 * day, func(m time.Time) bool { return clock(m, 5, 30) && m.Weekday() == time.Monday }},
		"0 0 1 * *":      {35 * day, func(m time.Time) bool { return clock(m, 0, 0) && m.Day() == 1 }},
	} {
		schedule := parse(t, s)
		var ticks []time.Time
		for n := range test.minutes {
			if minute := start.Add(time.Duration(n) * time.Minute); test.due(minute) {
				ticks = append(ticks, minute)
			}
		}
		if len(ticks) < 2 {
			t.Fatalf("%s has %d ticks: nothing is between them", s, len(ticks))
		}
		for i, tick := range ticks[1:] {
			before := ticks[i]
			for _, between := range []time.Time{before, before.Add(time.Nanosecond), before.Add(30 * time.Second), tick.Add(-time.Nanosecond)} {
				if next, last := schedule.Next(between), schedule.Last(between); !next.Equal(tick) || !last.Equal(before) {
					t.Fatalf("%s at %s: last %s, next %s, want %s and %s", s, between, last, next, before, tick)
				}
			}
		}
	}
}

func TestTicksOfIntervals(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	for s, want := range map[string]time.Time{
		"every 1s":   time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		"every 20ms": time.Date(2026, 3, 4, 5, 6, 7, 80_000_000, time.UTC),
		"every 24h":  time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC),
	} {
		schedule := parse(t, s)
		if got := schedule.Last(now); !got.Equal(want) {
			t.Errorf("%s: last %s, want %s", s, got, want)
		}
		if next := schedule.Next(now); !schedule.Last(next).Equal(next) || !next.After(now) || schedule.Next(want) != next {
			t.Errorf("%s: next %s", s, next)
		}
	}
}

func TestNeverHasNoTicks(t *testing.T) {
	t.Parallel()
	var never job.Schedule
	if !never.Next(time.Now()).IsZero() || !never.Last(time.Now()).IsZero() {
		t.Error("the zero schedule has ticks")
	}
}
