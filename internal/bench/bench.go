package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// Service is what is measured and where its costs are read.
type Service struct {
	Target
	Admins []string // addresses of /metrics; none: not scraped
	Pids   []int    // of its processes
	API    bool     // it shows stock

	children []*child // that we started for it
}

// Cost is the CPU time that each part of a run used; all 0 where the system does not tell.
type Cost struct {
	Generator, Service, Redis, Postgres time.Duration
	Machine                             time.Duration // everything that ran on it, these included
}

// Measured is a run and what it did to the parts of the stack.
type Measured struct {
	*Load
	Cost    Cost
	Flush   time.Duration      // what the disk of the ledger needed for one, just before; 0: not known
	Metrics map[string]float64 // of the service, what was added to each during the run
}

// usage is read before and after.
func (s *Stack) usage(service *Service) Cost {
	c := Cost{Generator: ownTime(), Service: cpuTime(service.Pids...), Machine: machineTime()}
	if s != nil {
		c.Redis, c.Postgres = cpuTime(s.Redis.Pid()), cpuTime(s.Postgres.Pid())
	}
	return c
}

func (c Cost) since(start Cost) Cost {
	return Cost{
		c.Generator - start.Generator, c.Service - start.Service, c.Redis - start.Redis, c.Postgres - start.Postgres,
		c.Machine - start.Machine,
	}
}

// Plan says how a workload is run.
type Plan struct {
	Clients int           // connections
	Warmup  time.Duration // before what counts, as fast as answers come
	For     time.Duration // what counts
	Rate    float64       // requests a second whatever the answers take; 0: as fast as answers come
	Profile string        // file that a CPU profile of the service is written to, while what counts runs; empty: none
}

// Measure runs a workload against a service. The stack may be nil.
func (s *Stack) Measure(ctx context.Context, service *Service, w *Workload, plan Plan) (*Measured, error) {
	g, err := Dial(ctx, service.Target, plan.Clients)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	// One thread runs all connections: they wait most of the time, and a second one would only take the cores of those measured.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if plan.Warmup > 0 {
		if warm := g.Run(ctx, w, Pace{For: plan.Warmup}); warm.Wrong > 0 {
			return &Measured{Load: warm}, nil
		}
	}
	m := &Measured{}
	if m.Flush, err = s.flushTime(); err != nil {
		return nil, err
	}
	before, err := scrape(ctx, service.Admins)
	if err != nil {
		return nil, err
	}
	start := s.usage(service)
	profiled := make(chan error, 1)
	go func() { profiled <- service.profile(ctx, plan) }()
	m.Load = g.Run(ctx, w, Pace{For: plan.For, Rate: plan.Rate})
	end := s.usage(service)
	m.Cost = end.since(start)
	if m.Metrics, err = scrape(ctx, service.Admins); err != nil {
		return nil, err
	}
	if err := <-profiled; err != nil {
		return nil, err
	}
	for name, value := range before {
		m.Metrics[name] -= value
	}
	return m, ctx.Err()
}

// profile writes a CPU profile of the service's first process, if the plan wants one.
func (s *Service) profile(ctx context.Context, plan Plan) error {
	if plan.Profile == "" {
		return nil
	}
	if len(s.Admins) == 0 {
		return errors.New("the service shows no profiles")
	}
	file, err := os.Create(plan.Profile)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", max(plan.For.Seconds(), 1))
	err = fetch(ctx, s.Admins[0], path, func(body io.Reader) error {
		_, err := io.Copy(file, body)
		return err
	})
	return errors.Join(err, file.Close())
}

// flushTime is the median of some flushes of a page to the disk that the ledger is on: what a commit waits for at least.
func (s *Stack) flushTime() (time.Duration, error) {
	if s == nil {
		return 0, nil
	}
	file, err := os.CreateTemp(s.data, "flush-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	var times [21]time.Duration
	for i := range times {
		start := time.Now()
		if _, err := file.Write(make([]byte, 8<<10)); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times[:])
	return times[len(times)/2], nil
}

// Verify reports everything that is wrong after a run.
func (s *Stack) Verify(ctx context.Context, service *Service, w *Workload) error {
	var errs []error
	if service.API {
		errs = append(errs, w.VerifyAPI(ctx, service.Target))
	}
	if s != nil {
		errs = append(errs, w.VerifyLedger(ctx, s.DatabaseURL()))
	}
	return errors.Join(errs...)
}
