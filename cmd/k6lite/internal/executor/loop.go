package executor

import (
	"sync"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// loop runs constant-vus, shared-iterations and per-vu-iterations: every virtual user begins its next iteration as soon
// as the last is over, until there is none left for it or the time is up.
func (r *Runner) loop() {
	var wg sync.WaitGroup
	for _, vu := range r.vus {
		wg.Go(func() {
			for mine := 0; !r.ending.Load(); mine++ {
				n, ok := r.claim(mine)
				if !ok || vu.Iterate(n) == vm.Interrupted {
					return
				}
				r.completed.Add(1)
			}
		})
	}
	wg.Wait()
	if total := r.total(); total > 0 {
		r.drop(total - min(total, r.begun.Load()))
	}
}

// total is how many iterations the plan asks for, 0 for as many as there is time for.
func (r *Runner) total() int64 {
	switch r.plan.Executor {
	case option.SharedIterations:
		return int64(r.plan.Iterations)
	case option.PerVUIterations:
		return int64(r.plan.Iterations) * int64(r.plan.VUs)
	default:
		return 0
	}
}

// claim takes the number of the next iteration for a virtual user that has begun mine so far.
func (r *Runner) claim(mine int) (int64, bool) {
	if r.plan.Executor == option.PerVUIterations && mine >= r.plan.Iterations {
		return 0, false
	}
	n := r.begun.Add(1) - 1
	return n, r.plan.Executor != option.SharedIterations || n < int64(r.plan.Iterations)
}
