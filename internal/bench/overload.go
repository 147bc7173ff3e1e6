package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// OverloadConfig says how a service is overloaded. What it can do is bounded by a slow disk and by how many requests it lets in, not by
// the processors, which the load generator would take away from it.
type OverloadConfig struct {
	AtOnce      int           // requests that the service lets in
	CommitDelay time.Duration // that each flush of Postgres takes longer
	Deadline    time.Duration // of a request
	Measure     time.Duration // how long its capacity is measured
	Factor      float64       // how many times that is asked for
	For         time.Duration // for how long
	Progress    io.Writer
}

// Overload is what came of it.
type Overload struct {
	Capacity float64       `json:"capacity"` // deductions a second, when as many requests are under way as are let in
	Offered  float64       `json:"offered"`  // requests a second
	Goodput  float64       `json:"goodput"`  // deductions a second
	Shed     int64         `json:"shed"`     // requests turned away with 503 and Retry-After
	P50      time.Duration `json:"p50_ns"`   // of what was taken
	P99      time.Duration `json:"p99_ns"`
	ShedP99  time.Duration `json:"shed_p99_ns"`
	Recovery time.Duration `json:"recovery_ns"` // from the end of the rush until nothing is turned away any more
	Wrong    []string      `json:"wrong,omitempty"`

	deadline time.Duration
	factor   float64
}

// Limits of what overload may do.
const (
	leastGoodput  = 0.8 // of the capacity
	mostRecovery  = time.Second
	enoughOffered = 0.8 // of what was to be offered; less is no overload by that factor
)

// Broken says which promises were not kept, if any.
func (o *Overload) Broken() error {
	var broken []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Errorf(format, args...))
		}
	}
	must(o.Offered >= enoughOffered*o.factor*o.Capacity, "only %.1f times the capacity was offered: the load generator is too slow here", o.Offered/o.Capacity)
	must(o.Shed > 0, "nothing was turned away")
	must(o.Goodput >= leastGoodput*o.Capacity, "%.0f deductions a second of %.0f", o.Goodput, o.Capacity)
	must(o.P99 <= o.deadline, "one in a hundred took more than %v, the deadline is %v", o.P99, o.deadline)
	must(o.Recovery <= mostRecovery, "it took %v to recover", o.Recovery)
	for _, reason := range o.Wrong {
		broken = append(broken, errors.New(reason))
	}
	return errors.Join(broken...)
}

// String is a text for people.
func (o *Overload) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	line("capacity", "%.0f deductions/s", o.Capacity)
	line("offered", "%.0f requests/s, %.1f times as much", o.Offered, o.Offered/o.Capacity)
	line("goodput", "%.0f deductions/s, %.0f %% of the capacity", o.Goodput, 100*o.Goodput/o.Capacity)
	line("taken", "p50 %v, p99 %v; the deadline is %v", o.P50.Round(time.Millisecond), o.P99.Round(time.Millisecond), o.deadline)
	line("shed", "%d, all with 503 and Retry-After, p99 %v", o.Shed, o.ShedP99.Round(time.Millisecond))
	line("recovery", "%v", o.Recovery.Round(time.Millisecond))
	return b.String()
}

// Overload measures what a service can do, asks for several times that, and looks how it comes out of it.
func (s *Stack) Overload(ctx context.Context, cfg OverloadConfig) (*Overload, error) {
	if err := s.SetCommitDelay(ctx, cfg.CommitDelay); err != nil {
		return nil, err
	}
	service, err := s.StartService(ServiceConfig{Processes: 1, Env: []string{
		"HOLDFAST_MAX_IN_FLIGHT=" + strconv.Itoa(cfg.AtOnce), "HOLDFAST_REQUEST_DEADLINE=" + cfg.Deadline.String(), "HOLDFAST_ACCESS_LOG=false",
	}})
	if err != nil {
		return nil, err
	}
	w := NewWorkload(Shape{Items: 1, Lines: 1, Stock: Plenty, Sheds: true})
	if err := w.Create(ctx, service.Target); err != nil {
		return nil, err
	}
	rush := &rush{cfg: cfg, work: w, found: &Overload{deadline: cfg.Deadline, factor: cfg.Factor}}
	if err := rush.run(ctx, service.Target); err != nil {
		return nil, err
	}
	if err := s.Verify(ctx, service, w); err != nil {
		rush.found.Wrong = append(rush.found.Wrong, err.Error())
	}
	return rush.found, ctx.Err()
}

// rush is a run of it.
type rush struct {
	cfg   OverloadConfig
	work  *Workload
	found *Overload
}

func (r *rush) run(ctx context.Context, target Target) error {
	// Not quite all that are let in: a request counts for a moment longer than its answer takes to be read.
	few, err := Dial(ctx, target, max(r.cfg.AtOnce*7/8, 1))
	if err != nil {
		return err
	}
	defer few.Close()
	r.load(ctx, few, Pace{For: r.cfg.Measure / 5}) // warm
	normal := r.load(ctx, few, Pace{For: r.cfg.Measure})
	capacity := float64(normal.Taken) / normal.Took.Seconds()
	fmt.Fprintf(r.cfg.Progress, "capacity %.0f deductions/s, p99 %v\n", capacity, normal.Latency.Percentile(99))

	many, err := Dial(ctx, target, 3*r.cfg.AtOnce) // now: the service does not wait long for the first request of a connection
	if err != nil {
		return err
	}
	defer many.Close()
	pace := Pace{For: r.cfg.For, Rate: r.cfg.Factor * capacity}
	over := r.load(ctx, many, pace)
	f := r.found
	f.Capacity, f.Offered = capacity, float64(over.Requests)/over.Took.Seconds()
	f.Goodput, f.Shed = float64(over.Taken)/over.Took.Seconds(), over.Shed.Count()
	f.P50, f.P99, f.ShedP99 = over.Latency.Percentile(50), over.Latency.Percentile(99), over.Shed.Percentile(99)
	f.Recovery = max(over.Took-pace.For, 0) + r.afterwards(ctx, many, capacity/2)
	return ctx.Err()
}

// afterwards is how long it takes until nothing is turned away any more and all is answered within the deadline, at half of what the service can do.
func (r *rush) afterwards(ctx context.Context, g *Generator, rate float64) time.Duration {
	const slice, most = 250 * time.Millisecond, 40
	for i := range most {
		after := r.load(ctx, g, Pace{For: slice, Rate: rate})
		if after.Shed.Count() == 0 && after.Latency.Max() <= r.cfg.Deadline {
			return time.Duration(i) * slice
		}
	}
	return most * slice
}

// load runs, and keeps what was wrong with it.
func (r *rush) load(ctx context.Context, g *Generator, pace Pace) *Load {
	l := g.Run(ctx, r.work, pace)
	for _, reason := range l.Reasons {
		r.found.Wrong = append(r.found.Wrong, reason.Error())
	}
	return l
}
