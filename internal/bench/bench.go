package bench

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// Service is what is measured and where its costs are read.
type Service struct {
	Target
	Admins []string // addresses of /metrics; none: not scraped
	Pids   []int    // of its processes
	API    bool     // it shows stock
}

// Cost is the CPU time that each part of a run used; all 0 where the system does not tell.
type Cost struct{ Generator, Service, Redis, Postgres time.Duration }

// Measured is a run and what it did to the parts of the stack.
type Measured struct {
	*Load
	Cost    Cost
	Metrics map[string]float64 // of the service, what was added to each during the run
}

// usage is read before and after.
func (s *Stack) usage(service *Service) Cost {
	c := Cost{Generator: ownTime(), Service: cpuTime(service.Pids...)}
	if s != nil {
		c.Redis, c.Postgres = cpuTime(s.Redis.Pid()), cpuTime(s.Postgres.Pid())
	}
	return c
}

// Plan says how a workload is run.
type Plan struct {
	Clients int           // connections
	Warmup  time.Duration // before what counts, as fast as answers come
	For     time.Duration // what counts
	Rate    float64       // requests a second whatever the answers take; 0: as fast as answers come
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
	before, err := scrape(ctx, service.Admins)
	if err != nil {
		return nil, err
	}
	start := s.usage(service)
	m := &Measured{Load: g.Run(ctx, w, Pace{For: plan.For, Rate: plan.Rate})}
	end := s.usage(service)
	m.Cost = Cost{end.Generator - start.Generator, end.Service - start.Service, end.Redis - start.Redis, end.Postgres - start.Postgres}
	if m.Metrics, err = scrape(ctx, service.Admins); err != nil {
		return nil, err
	}
	for name, value := range before {
		m.Metrics[name] -= value
	}
	return m, ctx.Err()
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
