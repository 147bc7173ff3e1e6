package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A layer comparison runs one deduction path after the other, with layers taken away, on the same servers, and counts
// what each sold and what it got wrong. Throughput shows what a layer buys; the faults show what it costs to lack one.

// Trouble is what befalls a path while it runs.
type Trouble string

// The troubles.
const (
	NoTrouble  Trouble = "nothing"         // one hot item
	ManyItems  Trouble = "10,000 items"    // nothing, with orders spread over many items
	PausedHold Trouble = "a process stops" // one of two processes stands still, longer than a lock lasts, and goes on
	Forgetting Trouble = "Redis forgets"   // FLUSHALL ten times, each as a failover to a replica that had nothing
	Retrying   Trouble = "every order twice"
)

// Troubles lists all of them.
func Troubles() []Trouble {
	return []Trouble{NoTrouble, ManyItems, PausedHold, Forgetting, Retrying}
}

// Measures of a comparison.
const (
	spreadItems    = 10_000
	pathProcesses  = 2
	pathWorkers    = 16 // in each process
	pathLockTTL    = 2 * time.Second
	pathPause      = 3 * time.Second
	pathFlushes    = 10
	pathUnits      = 1_000_000 // of each item: more than any path sells
	stopAfter      = 100 * time.Millisecond
	orderPatience  = 10 * time.Second // after which an order counts as failed
	latencyBuckets = 2000             // the last one takes everything above 10 s
)

// PathResult is what one path did under one trouble.
type PathResult struct {
	Path       string        `json:"path"`
	Trouble    Trouble       `json:"trouble"`
	Orders     int64         `json:"orders"` // that were acknowledged, each counted once
	Failed     int64         `json:"failed"` // that were not, though there was stock
	Rate       float64       `json:"rate_per_second"`
	P50        time.Duration `json:"p50_ns"`
	P99        time.Duration `json:"p99_ns"`
	SoldTwice  int64         `json:"sold_twice"`  // acknowledged, but not taken from stock: units that will be sold once more
	TakenTwice int64         `json:"taken_twice"` // taken from stock beyond what orders wanted, unknown outcomes aside
}

// CompareConfig says what to compare.
type CompareConfig struct {
	Paths    []*Path
	Troubles []Trouble
	Lasts    time.Duration // of each run; longer where a process has to stop meanwhile
	Progress io.Writer     // gets a line for each run; nil: nobody does
}

// Compare runs every path under every trouble, one at a time.
func Compare(ctx context.Context, config CompareConfig) (results []PathResult, err error) {
	shared := &servers{progress: config.Progress}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, shared.stop(ctx))
	}()
	for _, path := range config.Paths {
		for _, trouble := range config.Troubles {
			s := &Stage{
				experiment: layersExperiment(), servers: shared, timeline: newTimeline(),
				name: fmt.Sprintf("layers-%d", len(results)),
			}
			result, err := path.run(ctx, s, trouble, config.Lasts)
			s.end()
			if err != nil {
				return results, fmt.Errorf("%s, %s: %w", path.Name, trouble, err)
			}
			results = append(results, result)
			if config.Progress != nil {
				fmt.Fprintf(config.Progress, "%-28s %-18s %8.0f/s\n", path.Name, trouble, result.Rate)
			}
		}
	}
	return results, nil
}

// layersExperiment stands for the comparison where its processes are found.
func layersExperiment() *Experiment {
	return &Experiment{Name: "layers", Roles: map[string]Role{"seller": playSeller}}
}

// run runs a path with two processes under one trouble.
func (p *Path) run(ctx context.Context, s *Stage, trouble Trouble, lasts time.Duration) (PathResult, error) {
	args, err := p.arrange(ctx, s, trouble)
	if err != nil {
		return PathResult{}, err
	}
	args.Lasts = lasts
	if trouble == PausedHold {
		args.Lasts = max(lasts, stopAfter+pathPause+time.Second)
	}
	var sellers [pathProcesses]*Process
	for i := range sellers {
		args.Process = i
		if sellers[i], err = s.Process(fmt.Sprint("seller ", i+1), "seller", args); err != nil {
			return PathResult{}, err
		}
		if _, err := sellers[i].Expect(ctx, "ready"); err != nil {
			return PathResult{}, err
		}
	}
	for _, seller := range sellers {
		if err := seller.Tell("go"); err != nil {
			return PathResult{}, err
		}
	}
	if err := befall(ctx, s, trouble, sellers[0], args); err != nil {
		return PathResult{}, err
	}
	var total tally
	for _, seller := range sellers {
		said, err := seller.Expect(ctx, "sold")
		if err != nil {
			return PathResult{}, err
		}
		var sold tally
		if err := json.Unmarshal([]byte(said), &sold); err != nil {
			return PathResult{}, err
		}
		total.add(&sold)
	}
	left, err := args.left(ctx, s)
	if err != nil {
		return PathResult{}, err
	}
	return total.result(p.Name, trouble, int64(args.Items)*pathUnits-left), nil
}

// befall brings the trouble about while the sellers sell.
func befall(ctx context.Context, s *Stage, trouble Trouble, first *Process, args sellerArgs) error {
	if trouble != PausedHold && trouble != Forgetting {
		return nil
	}
	if err := s.wait(ctx, stopAfter); err != nil { // the time at which it happens is part of the comparison
		return err
	}
	if trouble == Forgetting {
		for range pathFlushes {
			if err := errors.Join(s.flush(ctx, args), s.wait(ctx, args.Lasts/(2*pathFlushes))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := first.Stop(ctx); err != nil {
		return err
	}
	if err := s.wait(ctx, pathPause); err != nil {
		return err
	}
	return first.Continue()
}

// wait lets time pass that is part of what is measured.
func (s *Stage) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush makes every Redis of the run forget all it had.
func (s *Stage) flush(ctx context.Context, args sellerArgs) error {
	for _, addr := range args.Redis {
		if err := s.Client(addr).FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}
