// Package executor runs scenarios: it decides when which virtual user begins an iteration, by the rules of the six
// documented executors, and when one that takes too long is interrupted.
//
// Every scenario has virtual users of its own. Iterations that the plan asked for and no virtual user could begin are
// counted in dropped_iterations, never made up for later.
package executor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// Runner runs one scenario.
type Runner struct {
	plan  option.Scenario
	host  *vm.Host
	data  string // what setup returned, as JSON
	work  *vm.Workload
	rec   *metric.Recorder
	spawn func() (*vm.VU, error)

	started   atomic.Pointer[time.Time]
	begun     atomic.Int64 // iterations begun, or claimed by a virtual user
	completed atomic.Int64
	ending    atomic.Bool // no iteration may begin any more

	mu  sync.Mutex // guards vus
	vus []*vm.VU
}

// New returns a runner for plan. spawn initialises one more virtual user; it is called by several goroutines.
func New(plan option.Scenario, host *vm.Host, spawn func() (*vm.VU, error)) *Runner {
	r := &Runner{plan: plan, host: host, spawn: spawn, rec: host.Registry.Recorder()}
	tags := &metric.Tags{Below: host.RunTags()}
	for k, v := range plan.Tags {
		tags.Set(k, v)
	}
	r.work = &vm.Workload{
		Name: plan.Name, Executor: plan.Executor, Exec: plan.Exec, Env: plan.Env, Tags: tags, Progress: r.Progress,
	}
	return r
}

// Initial is how many virtual users the scenario needs before it starts.
func (r *Runner) Initial() int {
	switch r.plan.Executor {
	case option.ConstantArrivalRate, option.RampingArrivalRate:
		return r.plan.PreAllocatedVUs
	default:
		return r.plan.MaxActive()
	}
}

// Give hands the scenario one of its virtual users.
func (r *Runner) Give(vu *vm.VU) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vus = append(r.vus, vu)
}

// Run runs the scenario to its end; data is what setup returned. Cancelling ctx interrupts every iteration at once.
// It returns when no iteration is running any more.
func (r *Runner) Run(ctx context.Context, data string) error {
	r.data = data
	begin := time.Now().Add(r.plan.StartTime)
	for _, vu := range r.vus {
		if err := vu.Attach(r.work, data); err != nil {
			return err
		}
	}
	if !sleepUntil(ctx, begin) {
		return nil
	}
	r.work.Started = time.Now()
	r.started.Store(&r.work.Started)
	finished := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() { r.guard(ctx, finished) })
	switch r.plan.Executor {
	case option.RampingVUs:
		r.rampVUs(ctx)
	case option.ConstantArrivalRate, option.RampingArrivalRate:
		r.arrive(ctx)
	default:
		r.loop()
	}
	close(finished)
	guard.Wait()
	r.ending.Store(true)
	for _, vu := range r.vus {
		vu.Close()
	}
	return nil
}

// guard ends the scenario: when its planned time is over no iteration begins any more, and gracefulStop later the
// remaining ones are interrupted.
func (r *Runner) guard(ctx context.Context, finished <-chan struct{}) {
	end := r.work.Started.Add(r.plan.Planned())
	for _, at := range []time.Time{end, end.Add(r.plan.GracefulStop)} {
		t := time.NewTimer(time.Until(at))
		select {
		case <-finished:
			t.Stop()
			return
		case <-t.C:
			r.ending.Store(true)
		case <-ctx.Done():
			t.Stop()
			r.ending.Store(true)
			r.interruptAll()
			return
		}
	}
	r.interruptAll()
}

func (r *Runner) interruptAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, vu := range r.vus {
		vu.Interrupt()
	}
}

// Progress is how much of the plan is done, between 0 and 1: by iterations where those are counted, else by time.
func (r *Runner) Progress() float64 {
	started := r.started.Load()
	if started == nil {
		return 0
	}
	switch r.plan.Executor {
	case option.SharedIterations:
		return min(1, float64(r.completed.Load())/float64(r.plan.Iterations))
	case option.PerVUIterations:
		return min(1, float64(r.completed.Load())/float64(r.plan.Iterations*r.plan.VUs))
	default:
		return min(1, float64(time.Since(*started))/float64(r.plan.Planned()))
	}
}

// drop counts iterations that could not begin.
func (r *Runner) drop(n int64) {
	if n > 0 {
		tags := &metric.Tags{Own: []metric.Tag{{Key: "scenario", Value: r.plan.Name}}, Below: r.work.Tags}
		r.rec.Add(tags, metric.Sample{Metric: r.host.Builtin.DroppedIterations, Value: float64(n)})
	}
}

// Check refuses a plan that the script cannot carry out.
func (r *Runner) Check(vu *vm.VU) error {
	if !vu.Has(r.plan.Exec) {
		return fmt.Errorf("scenario %s: the script exports no function %q", r.plan.Name, r.plan.Exec)
	}
	return nil
}

// sleepUntil waits for a point in time; false when ctx ended first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
