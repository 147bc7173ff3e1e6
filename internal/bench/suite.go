package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// SuiteConfig says how the suite is run.
type SuiteConfig struct {
	Round    time.Duration // that each measurement takes
	Rounds   int           // of each that is compared, in turn with the other; the median counts
	Only     []string      // names of parts; empty: all but prefill
	Prefill  int           // millions of deductions before the part prefill measures again
	Progress io.Writer
}

// Row is one line of the suite's table.
type Row struct {
	Part  string   `json:"part"`
	What  string   `json:"what"`
	Run   *Summary `json:"run"`
	Note  string   `json:"note,omitempty"`  // what it comes to beside another row
	Asked string   `json:"asked,omitempty"` // what it should be
}

// part of the suite.
type part struct {
	name string
	run  func(*suite, context.Context) error
}

func parts() []part {
	return []part{
		{"hot", func(s *suite, ctx context.Context) error {
			return s.beside(ctx, "one hot SKU", 1, "≥ 20,000/s, p99 < 10 ms, ≥ 15 × baseline")
		}},
		{"spread", func(s *suite, ctx context.Context) error {
			return s.beside(ctx, "10,000 SKUs", spreadItems, "≥ 15,000/s, ≥ 3 × baseline")
		}},
		{"refusals", (*suite).refusals},
		{"single", (*suite).single},
		{"batch", (*suite).batch},
		{"slow-flush", (*suite).slowFlush},
		{"two-processes", (*suite).twoProcesses},
		{"prefill", (*suite).prefill},
	}
}

const (
	clients     = 64
	spreadItems = 10_000
)

// Parts lists the names of the suite's parts.
func Parts() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// suite is a run of it.
type suite struct {
	*Stack
	cfg     SuiteConfig
	service *Service // one process
	rows    []Row
	part    string
}

// Suite measures everything that the promise of speed names. Rows measured before an error are returned with it.
func (s *Stack) Suite(ctx context.Context, cfg SuiteConfig) ([]Row, error) {
	service, err := s.StartService(ServiceConfig{Processes: 1})
	if err != nil {
		return nil, err
	}
	run := &suite{Stack: s, cfg: cfg, service: service}
	for _, p := range parts() {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, p.name) || len(cfg.Only) == 0 && p.name == "prefill" {
			continue
		}
		run.part = p.name
		if err := p.run(run, ctx); err != nil {
			return run.rows, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return run.rows, nil
}

func (s *suite) row(what string, run *Summary, note, asked string) {
	s.rows = append(s.rows, Row{s.part, what, run, note, asked})
}

// contender is a service and what it is asked for.
type contender struct {
	name    string
	service *Service
	work    *Workload
	clients int
	runs    []*Summary
}

// once measures a contender for a round.
func (s *suite) once(ctx context.Context, c *contender, round time.Duration) error {
	m, err := s.Measure(ctx, c.service, c.work, Plan{Clients: c.clients, Warmup: round / 5, For: round})
	if err != nil {
		return err
	}
	if err := m.Check(nil); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	run := m.Summary()
	c.runs = append(c.runs, run)
	fmt.Fprintf(s.cfg.Progress, "%-14s %-44s %8.0f/s  p50 %6.2f ms  p99 %6.2f ms\n", s.part, c.name, run.PerSecond, ms(run.P50), ms(run.P99))
	return nil
}

// inTurn measures contenders in turn, and then everything that they have left behind.
func (s *suite) inTurn(ctx context.Context, contenders ...*contender) error {
	for range s.cfg.Rounds {
		for _, c := range contenders {
			if err := s.once(ctx, c, s.cfg.Round); err != nil {
				return err
			}
		}
	}
	var errs []error
	for i, c := range contenders {
		if slices.ContainsFunc(contenders[:i], func(other *contender) bool { return other.work == c.work }) {
			continue
		}
		if err := s.Verify(ctx, c.service, c.work); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// median is the run with the median rate, the slower one of the two in the middle.
func (c *contender) median() *Summary {
	runs := slices.SortedFunc(slices.Values(c.runs), func(a, b *Summary) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
	return runs[(len(runs)-1)/2]
}

// contend makes a workload with ample stock for the service.
func (s *suite) contend(ctx context.Context, name string, items int) (*contender, error) {
	c := &contender{name: name, service: s.service, clients: clients, work: NewWorkload(Shape{Items: items, Lines: 1, Stock: Plenty})}
	return c, c.work.Create(ctx, s.service.Target)
}

// beside measures the service beside the baseline.
func (s *suite) beside(ctx context.Context, what string, items int, asked string) error {
	ours, err := s.contend(ctx, what, items)
	if err != nil {
		return err
	}
	theirs, sessions, err := s.baseline(ctx, what, items)
	if err != nil {
		return err
	}
	if err := s.inTurn(ctx, ours, theirs); err != nil {
		return err
	}
	if err := theirs.service.Stop(); err != nil {
		return err
	}
	a, b := ours.median(), theirs.median()
	s.row(what, a, fmt.Sprintf("%.1f × baseline", a.Deductions/b.Deductions), asked)
	s.row(what+", baseline: SELECT … FOR UPDATE", b, fmt.Sprintf("pool of %d", sessions), "")
	return nil
}

// baseline is the SELECT … FOR UPDATE service with the pool that suits it best.
func (s *suite) baseline(ctx context.Context, what string, items int) (best *contender, sessions int, err error) {
	work := NewWorkload(Shape{Items: items, Lines: 1, Stock: Plenty})
	if err := work.Insert(ctx, s.DatabaseURL()); err != nil {
		return nil, 0, err
	}
	for _, n := range []int{8, 16, 32, 64} {
		service, err := s.StartBaseline(n)
		if err != nil {
			return nil, 0, err
		}
		c := &contender{name: fmt.Sprintf("%s, baseline, pool of %d", what, n), service: service, work: work, clients: clients}
		if err := s.once(ctx, c, s.cfg.Round/2); err != nil {
			return nil, 0, err
		}
		worse := c
		if best == nil || c.runs[0].Deductions > best.runs[0].Deductions {
			worse, best, sessions = best, c, n
		}
		if worse != nil {
			if err := worse.service.Stop(); err != nil {
				return nil, 0, err
			}
		}
	}
	best.runs = nil
	return best, sessions, nil
}

func (s *suite) refusals(ctx context.Context) error {
	c := &contender{name: "refusals of a sold-out SKU", service: s.service, clients: clients, work: NewWorkload(Shape{Items: 1, Lines: 1})}
	if err := c.work.Create(ctx, s.service.Target); err != nil {
		return err
	}
	if err := s.inTurn(ctx, c); err != nil {
		return err
	}
	run := c.median()
	s.row(c.name, run, fmt.Sprintf("%.0f refusals/s", float64(run.Statuses[409])/run.Seconds), "≥ 40,000/s")
	return nil
}

func (s *suite) single(ctx context.Context) error {
	c, err := s.contend(ctx, "one client", 1)
	if err != nil {
		return err
	}
	c.clients = 1
	if err := s.inTurn(ctx, c); err != nil {
		return err
	}
	s.row(c.name, c.median(), "", "p50 < 1.5 ms")
	return nil
}

// batchSize is how many deductions a call of the part batch carries.
const batchSize = 100

// batch measures the same orders one a call and many a call, by the same number of clients.
func (s *suite) batch(ctx context.Context) error {
	for _, load := range []struct {
		what  string
		items int
	}{{"one hot SKU", 1}, {"10,000 SKUs", spreadItems}} {
		alone, err := s.contend(ctx, load.what+", one deduction a call", load.items)
		if err != nil {
			return err
		}
		together, err := s.contend(ctx, fmt.Sprintf("%s, %d deductions a call", load.what, batchSize), load.items)
		if err != nil {
			return err
		}
		together.work.Batch = batchSize
		if err := s.inTurn(ctx, alone, together); err != nil {
			return err
		}
		a, b := alone.median(), together.median()
		s.row(alone.name, a, "", "")
		s.row(together.name, b, fmt.Sprintf("%.0f deductions/s, %.1f × one a call", b.Deductions, b.Deductions/a.Deductions), "≥ 3 × one a call")
	}
	return nil
}

func (s *suite) slowFlush(ctx context.Context) error {
	c, err := s.contend(ctx, "one hot SKU, a flush takes 1 ms more", 1)
	if err != nil {
		return err
	}
	if err := s.SetCommitDelay(ctx, time.Millisecond); err != nil {
		return err
	}
	if err := errors.Join(s.inTurn(ctx, c), s.SetCommitDelay(ctx, 0)); err != nil {
		return err
	}
	s.row(c.name, c.median(), "", "≥ 12,000/s")
	return nil
}

func (s *suite) twoProcesses(ctx context.Context) error {
	both, err := s.StartService(ServiceConfig{Processes: 2})
	if err != nil {
		return err
	}
	for _, load := range []struct {
		clients int
		asked   string
	}{{clients, "≥ 0.6 of one process, uneven by ≤ 10 %"}, {4 * clients, "≥ 0.8 of one process, uneven by ≤ 10 %"}} {
		one, err := s.contend(ctx, fmt.Sprintf("one hot SKU, one process, %d clients", load.clients), 1)
		if err != nil {
			return err
		}
		two := &contender{name: fmt.Sprintf("one hot SKU, two processes, %d clients", load.clients), service: both, work: one.work, clients: load.clients}
		one.clients = load.clients
		if err := s.inTurn(ctx, one, two); err != nil {
			return err
		}
		a, b := one.median(), two.median()
		s.row(one.name, a, "", "")
		s.row(two.name, b, fmt.Sprintf("%.2f of one process, uneven by %.0f %%", b.Deductions/a.Deductions, unevenness(b.PerProcess)*100), load.asked)
	}
	return both.Stop()
}

// unevenness is how much more the one that was served most got than the one that was served least, as a share.
func unevenness(served []int64) float64 {
	least := slices.Min(served)
	if least == 0 {
		return 1
	}
	return float64(slices.Max(served)-least) / float64(least)
}

func (s *suite) prefill(ctx context.Context) error {
	workloads := []struct {
		what  string
		items int
	}{{"one hot SKU", 1}, {"10,000 SKUs", spreadItems}}
	var empty []*contender
	for _, load := range workloads {
		c, err := s.contend(ctx, load.what+", empty ledger", load.items)
		if err != nil {
			return err
		}
		if err := s.inTurn(ctx, c); err != nil {
			return err
		}
		empty = append(empty, c)
	}
	if err := s.Prefill(ctx, s.cfg.Prefill, s.cfg.Progress); err != nil {
		return err
	}
	for i, load := range workloads {
		full := &contender{
			name: fmt.Sprintf("%s, after %d million deductions", load.what, s.cfg.Prefill), service: s.service, work: empty[i].work, clients: clients,
		}
		if err := s.inTurn(ctx, full); err != nil {
			return err
		}
		a, b := empty[i].median(), full.median()
		s.row(empty[i].name, a, "", "")
		s.row(full.name, b, fmt.Sprintf("%.2f of an empty ledger", b.Deductions/a.Deductions), "≥ 0.8 of an empty ledger")
	}
	return nil
}
