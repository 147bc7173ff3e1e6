package schedule

import (
	"math"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
)

// Pace says when each iteration of an arrival-rate scenario begins.
type Pace struct {
	legs  []leg
	at    int     // leg of the iteration asked for last
	begun float64 // iterations that begin before that leg
}

// leg is a stretch of time over which the rate changes linearly.
type leg struct {
	starts, lasts time.Duration
	from, to      float64 // iterations a second
}

// iterations is how many iterations the leg begins, as a real number: the area under its rate.
func (l leg) iterations() float64 { return (l.from + l.to) / 2 * l.lasts.Seconds() }

// NewPace lays out the legs of a scenario.
func NewPace(plan *option.Scenario) *Pace {
	perSecond := func(n int) float64 { return float64(n) / plan.TimeUnit.Seconds() }
	if plan.Executor == option.ConstantArrivalRate {
		rate := perSecond(plan.Rate)
		return &Pace{legs: []leg{{0, plan.Duration, rate, rate}}}
	}
	p := new(Pace)
	var starts time.Duration
	rate := perSecond(plan.Rate)
	for _, stage := range plan.Stages {
		to := perSecond(stage.Target)
		p.legs = append(p.legs, leg{starts, stage.Duration, rate, to})
		starts, rate = starts+stage.Duration, to
	}
	return p
}

// Start returns when the n-th iteration begins, counted from 0 and from the start of the scenario; false when the plan
// has no n-th. Calls must not go backwards. The n-th begins as soon as the area under the rate exceeds n, so a
// constant rate begins its first at once and the following evenly.
func (p *Pace) Start(n int64) (time.Duration, bool) {
	const rounding = 1e-6 // of an iteration: 30 a second for 30 s are 900, not 901
	for ; p.at < len(p.legs); p.at++ {
		l := p.legs[p.at]
		within := float64(n) - p.begun
		if all := l.iterations(); within >= all-rounding {
			p.begun += all
			continue
		}
		return l.starts + time.Duration(l.reach(within)*float64(time.Second)), true
	}
	return 0, false
}

// reach returns the seconds after which the leg has begun n iterations: the root of from·t + (to−from)/(2·lasts)·t² = n.
func (l leg) reach(n float64) float64 {
	if n <= 0 {
		return 0
	}
	bend := (l.to - l.from) / (2 * l.lasts.Seconds())
	return 2 * n / (l.from + math.Sqrt(max(0, l.from*l.from+4*bend*n)))
}
