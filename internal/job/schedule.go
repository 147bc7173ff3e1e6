package job

import (
	"fmt"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

// MinInterval is the shortest interval between two ticks: each one costs a lease and two commits.
const MinInterval = 10 * time.Millisecond

// Schedule says when a job is to run: at the times of a cron expression, or at every multiple of an interval since
// 1970, so that all processes agree on the ticks without talking. Times are in UTC. The zero Schedule is never.
type Schedule struct {
	text  string
	every time.Duration // 0: text is a cron expression
}

// Every is the schedule of an interval, of [MinInterval] or more.
func Every(interval time.Duration) Schedule {
	return Schedule{text: "every " + interval.String(), every: max(interval, MinInterval)}
}

// ParseSchedule reads "every 5m", a cron expression of five fields (minute, hour, day, month, weekday), or "" for never.
func ParseSchedule(s string) (Schedule, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Schedule{}, nil
	}
	if interval, ok := strings.CutPrefix(s, "every "); ok {
		every, err := time.ParseDuration(strings.TrimSpace(interval))
		if err != nil || every < MinInterval {
			return Schedule{}, fmt.Errorf("schedule %q: the interval must be a duration of %s or more", s, MinInterval)
		}
		return Every(every), nil
	}
	if len(strings.Fields(s)) != 5 || !gronx.IsValid(s) {
		return Schedule{}, fmt.Errorf("schedule %q: must be \"every 5m\" or a cron expression of five fields", s)
	}
	return Schedule{text: s}, nil
}

// String is the schedule as [ParseSchedule] reads it.
func (s Schedule) String() string { return s.text }

// Never reports whether there is no tick at all.
func (s Schedule) Never() bool { return s.text == "" }

// Next is the first tick after t; zero if there is none within the years that the parser looks ahead.
func (s Schedule) Next(t time.Time) time.Time {
	switch {
	case s.Never():
		return time.Time{}
	case s.every > 0:
		return s.Last(t).Add(s.every)
	}
	next, err := gronx.NextTickAfter(s.text, t.UTC().Truncate(time.Minute), false)
	if err != nil {
		return time.Time{}
	}
	return next
}

// Last is the latest tick that is not after t; zero if there was none within the years that the parser looks back.
func (s Schedule) Last(t time.Time) time.Time {
	switch {
	case s.Never():
		return time.Time{}
	case s.every > 0:
		return time.Unix(0, t.UnixNano()/int64(s.every)*int64(s.every)).UTC()
	}
	last, err := gronx.PrevTickBefore(s.text, t.UTC().Truncate(time.Minute), true)
	if err != nil {
		return time.Time{}
	}
	return last.Truncate(time.Minute)
}
