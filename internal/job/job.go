package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// heldPause is how long to wait before looking again at a tick that another process is at work on.
	heldPause = time.Second
	// firstPause and lastPause bound the wait after a failure; it doubles from one to the other.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
	// callLimit bounds each call about a run, the work aside.
	callLimit = 5 * time.Second
)

// Work does what a job is for, once for each tick. What it writes is written under the fence; it gets no lock, only
// the token that makes its writes count. It returns how many rows it changed.
type Work func(ctx context.Context, fence stock.Fence) (rows int64, err error)

// Job is work that runs by itself.
type Job struct {
	Name     string // also of its lock and its fence; letters, digits and dashes
	Schedule Schedule
	// Limit is the hard deadline of one run: then its ctx ends, its writes are refused and others may go on.
	Limit time.Duration
	Work  Work
}

// Config of a [Runner].
type Config struct {
	Stock *inventory.Service
	// Locker keeps all but one process from working on a tick. That its leases have tokens is what makes the work
	// safe when it fails to.
	Locker     *lock.Locker[*lock.Fenced]
	Jobs       []Job
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept but shown to nobody
}

// Runner runs jobs at their times, each tick in one of all processes that have a Runner.
type Runner struct {
	stock   *inventory.Service
	locker  *lock.Locker[*lock.Fenced]
	workers []*worker
	name    string
	log     *slog.Logger
	metrics *metrics
}

// worker runs one job. It is used by one goroutine at a time.
type worker struct {
	*Runner
	job  Job
	done time.Time // the latest tick known to have ended
}

// New returns a runner; [Runner.Run] starts it.
func New(cfg Config) *Runner {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{stock: cfg.Stock, locker: cfg.Locker, name: processName(), log: cfg.Log, metrics: newMetrics(cfg.Registerer)}
	for _, j := range cfg.Jobs {
		r.workers = append(r.workers, &worker{Runner: r, job: j})
		r.metrics.announce(j.Name)
	}
	return r
}

// processName is how this process is called in the history.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s %d", host, os.Getpid())
}

// Run runs the jobs until ctx ends, and then until those under way have given up.
func (r *Runner) Run(ctx context.Context) {
	var working sync.WaitGroup
	for _, w := range r.workers {
		if !w.job.Schedule.Never() {
			working.Go(func() { w.run(ctx) })
		}
	}
	working.Wait()
}

func (w *worker) run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		now := time.Now()
		wait := w.job.Schedule.Next(now).Sub(now)
		err := w.attend(ctx, now)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = 0
		case errors.Is(err, lock.ErrHeld), errors.Is(err, stock.ErrStale):
			pause = 0
			wait = min(wait, heldPause)
		default:
			if pause == 0 {
				w.log.Warn("a job cannot be run, trying again", "job", w.job.Name, "error", err)
			}
			pause = min(max(2*pause, firstPause), lastPause)
			wait = pause
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// RunDue runs once what is due at a time and has not been run, as [Runner.Run] does all the time. The error is that of
// the first job that could not be run; [lock.ErrHeld] says that another process is at it.
func (r *Runner) RunDue(ctx context.Context, now time.Time) error {
	for _, w := range r.workers {
		if err := w.attend(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

// attend runs the latest tick that is due, unless it has been run. Ticks before it that were missed are skipped: one
// late run does what they would have done.
func (w *worker) attend(ctx context.Context, now time.Time) error {
	tick := w.job.Schedule.Last(now)
	if !tick.After(w.done) {
		return nil
	}
	ended, err := w.hasEnded(ctx, tick)
	if err != nil {
		return err
	}
	if !ended {
		if ended, err = w.lead(ctx, tick); err != nil {
			return err
		}
	}
	if ended {
		w.done = tick
	}
	return nil
}

// hasEnded looks whether there is nothing left to do for a tick, before anybody is asked for a lock.
func (w *worker) hasEnded(ctx context.Context, tick time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	runs, err := w.stock.Runs(ctx, w.job.Name, 1)
	if err != nil || len(runs) == 0 {
		return false, err
	}
	last := &runs[0]
	return last.ScheduledAt.After(tick) || last.ScheduledAt.Equal(tick) && last.EndedAt != nil, nil
}

// lead runs a tick as the one that holds the job's lock. It reports whether nothing is left to do for the tick.
func (w *worker) lead(ctx context.Context, tick time.Time) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	lease, err := w.locker.TryAcquire(asking, Key(w.job.Name), lock.Meta(tick.Format(time.RFC3339Nano)))
	if err != nil {
		if !errors.Is(err, lock.ErrHeld) {
			w.metrics.lockErrors.WithLabelValues(w.job.Name).Inc()
		}
		return false, err
	}
	defer func() { _ = lease.Release() }() // its observer tells; an unknown outcome ends with the lease
	leased, unbind := lease.Bind(ctx)
	defer unbind()
	t := &stock.Tick{
		Job: w.job.Name, ScheduledAt: tick, Token: stock.Token(lease.Fence()), Runner: w.name, Limit: w.job.Limit,
	}
	begun, err := w.begin(leased, t)
	if err != nil {
		return false, err
	}
	if !begun {
		return true, nil
	}
	return true, w.carryOut(leased, t, lease)
}

// Key is the key of a job's lock.
func Key(name string) string { return "job/" + name }

func (w *worker) begin(ctx context.Context, t *stock.Tick) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return w.stock.BeginRun(ctx, t)
}

var errDeadline = errors.New("the run took longer than its limit")

// carryOut does the work and writes down how it ended. A run whose lease was lost, or whose process stops, is left as
// it is, for another process to take it over.
func (w *worker) carryOut(leased context.Context, t *stock.Tick, lease *lock.Fenced) error {
	ctx, cancel := context.WithTimeoutCause(leased, w.job.Limit, errDeadline)
	defer cancel()
	started := time.Now()
	var once sync.Once
	var written error
	end := func(rows int64, failure error) error {
		once.Do(func() { written = w.end(t, started, rows, failure) })
		return written
	}
	// Work that does not look at its ctx must not keep others from the next tick.
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errDeadline) {
			_ = end(0, errDeadline) // told by the call below
			_ = lease.Release()
		}
	})
	rows, err := w.work(ctx, t.Fence())
	stop()
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, errDeadline):
		w.metrics.runs.WithLabelValues(w.job.Name, "abandoned").Inc()
		w.log.Warn("a job's run was cut short", "job", w.job.Name, "scheduled_at", t.ScheduledAt, "error", cause)
		return errors.Join(cause, err)
	case cause != nil:
		return end(rows, errDeadline)
	}
	return end(rows, err)
}

// work calls the job's work. One that panics has failed; the service goes on.
func (w *worker) work(ctx context.Context, fence stock.Fence) (rows int64, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("panic: %v", broken)
			w.log.Error("a job panicked", "job", w.job.Name, "panic", broken, "stack", string(debug.Stack()))
		}
	}()
	return w.job.Work(ctx, fence)
}

// end writes down how a run ended; a failure is final for its tick, the next one tries anew.
func (w *worker) end(t *stock.Tick, started time.Time, rows int64, failure error) error {
	ended := stock.Ended{Outcome: stock.RunDone, Rows: rows}
	if failure != nil {
		ended.Outcome, ended.Error = stock.RunFailed, failure.Error()
		w.log.Warn("a job failed", "job", t.Job, "scheduled_at", t.ScheduledAt, "error", failure)
	}
	w.metrics.observe(t.Job, ended, time.Since(started))
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := w.stock.EndRun(ctx, t, ended); err != nil {
		return fmt.Errorf("write down how %s at %s ended: %w", t.Job, t.ScheduledAt.Format(time.RFC3339Nano), err)
	}
	return nil
}
