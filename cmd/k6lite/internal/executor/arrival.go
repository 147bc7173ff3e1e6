package executor

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/schedule"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// lateStart is how late the hundredth-latest iteration may begin before the run says that the generator was too slow.
const lateStart = 50 * time.Millisecond

// crew is the virtual users of an arrival-rate scenario. The one that became free last gets the next iteration: its
// memory is warm and its connection fresh.
type crew struct {
	r  *Runner
	wg sync.WaitGroup

	mu        sync.Mutex // guards all below
	idle      []*worker
	size      int
	spawning  bool
	dismissed bool
}

type worker struct {
	vu   *vm.VU
	jobs chan int64 // holds one iteration at most
}

// arrive runs constant-arrival-rate and ramping-arrival-rate: iterations begin at the times the pace says, each on a
// free virtual user. When none is free the iteration is dropped, and, up to maxVUs, one more virtual user is made.
func (r *Runner) arrive(ctx context.Context) {
	c := &crew{r: r, size: len(r.vus)}
	for _, vu := range r.vus {
		c.join(vu)
	}
	var late metric.Histogram
	var planned, dropped int64
	p := schedule.NewPace(&r.plan)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ; ; planned++ {
		at, ok := p.Start(planned)
		if !ok {
			break
		}
		due := r.work.Started.Add(at)
		if !waitWith(ctx, timer, due) {
			break
		}
		if w := c.take(); w != nil {
			late.Add(float64(time.Since(due)))
			w.jobs <- r.begun.Add(1) - 1
			continue
		}
		dropped++
		r.drop(1)
		c.grow()
	}
	sleepUntil(ctx, r.work.Started.Add(r.plan.Planned()))
	r.ending.Store(true)
	c.dismiss()
	if n := planned - dropped; n > 0 {
		if worst := time.Duration(late.At(uint64(n) * 99 / 100)); worst > lateStart {
			r.host.Log.Printf("WARN", "scenario %s: one iteration in a hundred began %s or more after its time: "+
				"the load generator was short of CPU", r.plan.Name, worst.Round(time.Millisecond))
		}
	}
}

// waitWith waits until due with a timer that is used again and again; false when ctx ended first.
func waitWith(ctx context.Context, timer *time.Timer, due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(wait)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// join adds a virtual user to the crew and makes it idle.
func (c *crew) join(vu *vm.VU) {
	w := &worker{vu: vu, jobs: make(chan int64, 1)}
	if !c.free(w) {
		return
	}
	c.wg.Go(func() {
		for n := range w.jobs {
			if vu.Iterate(n) == vm.Interrupted {
				return // only happens at the end of the scenario
			}
			c.r.completed.Add(1)
			if !c.free(w) {
				return
			}
		}
	})
}

// free makes a virtual user idle; false when the scenario needs it no more.
func (c *crew) free(w *worker) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dismissed {
		c.idle = append(c.idle, w)
	}
	return !c.dismissed
}

// take returns a free virtual user, nil when there is none.
func (c *crew) take() *worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return nil
	}
	w := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	return w
}

// grow makes one more virtual user, unless one is being made or there are maxVUs.
func (c *crew) grow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spawning || c.size >= c.r.plan.MaxVUs {
		return
	}
	c.spawning = true
	c.size++
	c.wg.Go(func() {
		defer func() {
			c.mu.Lock()
			c.spawning = false
			c.mu.Unlock()
		}()
		vu, err := c.r.spawn()
		if err == nil {
			err = vu.Attach(c.r.work, c.r.data)
		}
		if err != nil {
			c.r.host.Abort(err)
			return
		}
		c.r.Give(vu)
		c.join(vu)
	})
}

// dismiss sends the idle ones away and waits for the others to finish.
func (c *crew) dismiss() {
	c.mu.Lock()
	c.dismissed = true
	for _, w := range c.idle {
		close(w.jobs)
	}
	c.mu.Unlock()
	c.wg.Wait()
}
