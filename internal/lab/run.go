package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// Limits of a lab run.
const (
	// caseLimit bounds one run of a case.
	caseLimit = 2 * time.Minute
	// atOnce is how many experiments run at the same time: most of their time they wait.
	atOnce = 4
)

// Config says what to run.
type Config struct {
	Experiments []*Experiment
	Runs        int             // of each case, at least 1
	Short       bool            // where an experiment needs a large amount of something, take less
	Progress    io.Writer       // gets a line before something takes long; nil: nobody does
	Done        func(r *Result) // is told of every experiment that is over, one at a time; nil: nobody is
}

// Verdict is what came of a case or an experiment.
type Verdict string

// The verdicts.
const (
	Shown   Verdict = "shown"   // seen in every run
	Missing Verdict = "missing" // not seen in every run: the claim is wrong, or the protection does not hold
	Broken  Verdict = "broken"  // could not be arranged
	Skipped Verdict = "skipped" // what it needs is not to be had on this machine
)

// Result is what came of one experiment.
type Result struct {
	Experiment  *Experiment   `json:"-"`
	Number      int           `json:"number"`
	Name        string        `json:"name"`
	Verdict     Verdict       `json:"verdict"`
	Anomalies   []CaseResult  `json:"anomalies"`
	Protections []CaseResult  `json:"protections"`
	Took        time.Duration `json:"took_ns"`
}

// CaseResult is what came of all runs of a case. What it tells is of the first run in which the case was not seen, or
// else of the first.
type CaseResult struct {
	Title    string        `json:"title"`
	Verdict  Verdict       `json:"verdict"`
	Seen     int           `json:"seen"`
	Runs     int           `json:"runs"`
	Notes    []string      `json:"notes"`
	Problem  string        `json:"problem,omitempty"`
	Timeline []Moment      `json:"timeline"`
	Took     time.Duration `json:"took_ns"` // of the run that is told
}

// Run runs experiments, several at once, and returns their results in the order of the experiments.
func Run(ctx context.Context, config Config) ([]*Result, error) {
	shared := &servers{progress: config.Progress}
	results := make([]*Result, len(config.Experiments))
	slots := make(chan struct{}, atOnce)
	var told sync.Mutex
	var running sync.WaitGroup
	for i, experiment := range config.Experiments {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = experiment.run(ctx, shared, config)
			told.Lock()
			defer told.Unlock()
			if config.Done != nil {
				config.Done(results[i])
			}
		})
	}
	running.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return results, shared.stop(ctx)
}

// run runs all cases of an experiment, one after the other.
func (e *Experiment) run(ctx context.Context, shared *servers, config Config) *Result {
	began := time.Now()
	r := &Result{Experiment: e, Number: e.Number, Name: e.Name, Verdict: Shown}
	for i, c := range e.cases() {
		came := e.repeat(ctx, shared, config, i, c)
		if i < len(e.Anomalies) {
			r.Anomalies = append(r.Anomalies, came)
		} else {
			r.Protections = append(r.Protections, came)
		}
		r.Verdict = worse(r.Verdict, came.Verdict)
	}
	r.Took = time.Since(began)
	return r
}

// worse is the verdict on two things of which both are needed.
func worse(a, b Verdict) Verdict {
	for _, v := range []Verdict{Broken, Missing, Skipped} {
		if a == v || b == v {
			return v
		}
	}
	return Shown
}

// repeat runs one case several times; it stops at the first run that cannot be arranged.
func (e *Experiment) repeat(ctx context.Context, shared *servers, config Config, index int, c Case) CaseResult {
	r := CaseResult{Title: c.Title, Verdict: Shown}
	for n := range config.Runs {
		s := &Stage{
			experiment: e, servers: shared, timeline: newTimeline(), name: fmt.Sprintf("%s-%d-%d", e.Name, index, n),
			short: config.Short,
		}
		seen, err := play(ctx, c, s)
		moments, notes, took := s.timeline.close()
		r.Runs++
		if seen {
			r.Seen++
		}
		if tell := n == 0 || r.Verdict == Shown && (!seen || err != nil); tell {
			r.Timeline, r.Notes, r.Took = moments, notes, took
		}
		switch {
		case errors.Is(err, sandbox.ErrUnavailable) || errors.Is(err, errCannot):
			r.Verdict, r.Problem = Skipped, err.Error()
			return r
		case err != nil:
			r.Verdict, r.Problem = Broken, err.Error()
			return r
		case !seen:
			r.Verdict = Missing
		}
	}
	return r
}

// errCannot: this machine lacks what an experiment needs.
var errCannot = errors.New("cannot be shown on this machine")

// play runs a case once and cleans up.
func play(ctx context.Context, c Case, s *Stage) (seen bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, caseLimit)
	defer cancel()
	defer s.end()
	return c.Run(ctx, s)
}

// Cases lists the results of the anomalies and the protections.
func (r *Result) Cases() []CaseResult { return slices.Concat(r.Anomalies, r.Protections) }
