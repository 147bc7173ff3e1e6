// Package schedule is the arithmetic of ramps: when iterations begin, and how many virtual users run when. It is pure; who
// carries a schedule out is executor's business.
package schedule

import (
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
)

// Step says how many virtual users run from a point in time on.
type Step struct {
	At    time.Duration // from the start of the scenario
	Count int
}

// Steps turns stages into the steps of a linear ramp: within a stage the n-th of d changes comes after n/d of its time.
func Steps(start int, stages []option.Stage) []Step {
	all := []Step{{0, start}}
	var began time.Duration
	count := start
	for _, stage := range stages {
		changes, way := stage.Target-count, 1
		if changes < 0 {
			changes, way = -changes, -1
		}
		for n := 1; n <= changes; n++ {
			at := began + time.Duration(float64(stage.Duration)*float64(n)/float64(changes))
			count += way
			all = append(all, Step{at, count})
		}
		began += stage.Duration
	}
	return all
}
