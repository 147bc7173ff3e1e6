package executor

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/schedule"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// rampVUs runs ramping-vus: each virtual user loops while the ramp wants it.
func (r *Runner) rampVUs(ctx context.Context) {
	over, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	slots := make([]*slot, len(r.vus))
	for i, vu := range r.vus {
		slots[i] = &slot{vu: vu, wake: make(chan struct{}, 1)}
		wg.Go(func() { slots[i].loop(over, r) })
	}
	running := 0
	for _, s := range schedule.Steps(r.plan.StartVUs, r.plan.Stages) {
		if !sleepUntil(ctx, r.work.Started.Add(s.At)) {
			break
		}
		for ; running < s.Count; running++ {
			slots[running].want()
		}
		for ; running > s.Count; running-- {
			slots[running-1].unwant(r.plan.GracefulRampDown)
		}
	}
	// The last stage may hold its target: the steps are over, the stage is not.
	sleepUntil(ctx, r.work.Started.Add(r.plan.Planned()))
	r.ending.Store(true)
	end()
	wg.Wait()
	for _, s := range slots {
		s.settle()
	}
}

// slot is one virtual user of a ramp.
type slot struct {
	vu   *vm.VU
	wake chan struct{}

	mu     sync.Mutex // guards all below
	wanted bool
	grace  *time.Timer // interrupts the virtual user that is not wanted any more
}

// want makes the virtual user loop.
func (s *slot) want() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = true
	if s.grace != nil {
		s.grace.Stop()
		s.grace = nil
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// unwant lets the virtual user finish its iteration within the grace, and then rest.
func (s *slot) unwant(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = false
	s.grace = time.AfterFunc(grace, s.expire)
}

// expire interrupts the iteration of a virtual user that is still not wanted.
func (s *slot) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wanted && s.grace != nil {
		s.vu.Interrupt()
	}
}

// settle stops the grace timer once the loop is over.
func (s *slot) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grace != nil {
		s.grace.Stop()
		s.grace = nil
	}
}

func (s *slot) isWanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// resume makes a virtual user that its ramp-down interrupted usable again, if it is wanted.
func (s *slot) resume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted {
		s.vu.Resume()
	}
	return s.wanted
}

// loop iterates while the slot is wanted and the scenario not over.
func (s *slot) loop(over context.Context, r *Runner) {
	for {
		select {
		case <-s.wake:
		case <-over.Done():
			return
		}
		for s.resume() && !r.ending.Load() {
			outcome := s.vu.Iterate(r.begun.Add(1) - 1)
			if outcome == vm.Complete {
				r.completed.Add(1)
			}
			if outcome == vm.Interrupted && r.ending.Load() {
				return
			}
			if !s.isWanted() {
				break
			}
		}
		s.settle()
	}
}
