// Package run takes a script through its documented life: init, setup, scenarios, teardown, summary, exit code.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/executor"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// Config is what the command line says.
type Config struct {
	Script  string
	Env     map[string]string
	CLI     option.CommandLine
	Quiet   bool
	Verbose bool // print console.debug lines
	Stdout  io.Writer
	Stderr  io.Writer

	StdoutTerminal bool
	StderrTerminal bool // shows progress, unless Quiet
}

// run is one run of a script.
type run struct {
	cfg       Config
	host      *vm.Host
	runners   []*executor.Runner
	lastID    atomic.Int64  // of a virtual user
	failed    atomic.Bool   // exec.test.fail() was called
	elapsed   time.Duration // of the scenarios
	setupData string        // what setup() returned, as JSON

	mu    sync.Mutex              // guards all below
	stop  context.CancelCauseFunc // ends all scenarios; nil before they begin
	first error                   // the first thing that ended the run
}

// Run runs the script and returns the exit code. Cancelling ctx ends the scenarios at once; teardown and the summary
// still follow.
func Run(ctx context.Context, cfg Config) int {
	r := &run{cfg: cfg}
	err := r.prepare()
	if err == nil {
		err = r.execute(ctx)
	}
	if err != nil {
		r.host.Log.Print("ERRO", err.Error())
	}
	return exitCode(err)
}

// prepare reads the script, its options and its thresholds, and makes everything ready for setup.
func (r *run) prepare() error {
	r.host = &vm.Host{
		Registry: metric.NewRegistry(), Outline: metric.NewOutline(), Env: r.cfg.Env, Proxy: proxies(r.cfg.Env),
		Log: vm.NewLog(r.cfg.Stderr, r.cfg.Verbose), State: new(vm.State),
		Abort: r.abort,
	}
	r.host.Fail = func(reason string) {
		r.failed.Store(true)
		r.host.Log.Print("ERRO", "test marked as failed: "+reason)
	}
	var err error
	if r.host.Builtin, err = metric.DeclareBuiltin(r.host.Registry); err != nil {
		return err
	}
	if r.host.Script, err = vm.Load(r.cfg.Script); err != nil {
		return scriptError(err)
	}
	first, err := vm.NewVU(r.host, 0)
	if err != nil {
		return scriptError(err)
	}
	exported, err := first.Options()
	if err != nil {
		return scriptError(err)
	}
	if r.host.Options, err = option.Parse(exported, r.cfg.CLI); err != nil {
		return &configError{err}
	}
	for _, stat := range r.host.Options.SummaryTrendStats {
		if err := metric.CheckStat(stat); err != nil {
			return &configError{fmt.Errorf("options.summaryTrendStats: %w", err)}
		}
	}
	if err := r.declareThresholds(); err != nil {
		return &configError{err}
	}
	for _, plan := range r.host.Options.Scenarios {
		runner := executor.New(plan, r.host, r.newVU)
		if err := runner.Check(first); err != nil {
			return &configError{err}
		}
		r.runners = append(r.runners, runner)
	}
	r.host.Registry.Freeze()
	return nil
}

// proxies returns which proxy the environment names for a URL, nil when it names none at all.
func proxies(env map[string]string) func(*url.URL) (*url.URL, error) {
	cfg := httpproxy.Config{
		HTTPProxy:  cmp.Or(env["HTTP_PROXY"], env["http_proxy"]),
		HTTPSProxy: cmp.Or(env["HTTPS_PROXY"], env["https_proxy"]),
		NoProxy:    cmp.Or(env["NO_PROXY"], env["no_proxy"]),
	}
	if cfg.HTTPProxy == "" && cfg.HTTPSProxy == "" {
		return nil
	}
	return cfg.ProxyFunc()
}

func (r *run) declareThresholds() error {
	for name, limits := range r.host.Options.Thresholds {
		m, err := r.host.Registry.Select(name)
		if err != nil {
			return fmt.Errorf("options.thresholds: %w", err)
		}
		for _, limit := range limits {
			t, err := metric.ParseThreshold(limit.Expression, m.Kind)
			if err != nil {
				return fmt.Errorf("options.thresholds.%s: %w", name, err)
			}
			t.AbortOnFail, t.Delay = limit.AbortOnFail, limit.DelayAbortEval
			m.Thresholds = append(m.Thresholds, t)
		}
	}
	return nil
}

// abort notes why the run ends early and ends the scenarios; the first reason counts.
func (r *run) abort(err error) {
	r.mu.Lock()
	if r.first == nil {
		r.first = err
	}
	stop := r.stop
	r.mu.Unlock()
	if stop != nil {
		stop(err)
	}
}

func (r *run) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// newVU initialises one more virtual user.
func (r *run) newVU() (*vm.VU, error) {
	vu, err := vm.NewVU(r.host, int(r.lastID.Add(1)))
	if err != nil {
		return nil, scriptError(err)
	}
	r.host.State.Initialized.Add(1)
	return vu, nil
}

// execute runs setup, the scenarios and teardown, prints the summary and returns what the run failed by.
func (r *run) execute(ctx context.Context) error {
	if err := r.initialise(ctx); err != nil {
		return err
	}
	r.announce()
	if err := r.setup(ctx); err != nil {
		return err
	}
	err := r.scenarios(ctx)
	if down := r.teardown(ctx); err == nil {
		err = down
	}
	verdict := r.judge()
	if summary := r.summarise(ctx); err == nil {
		err = summary
	}
	switch {
	case err != nil:
		if verdict != nil {
			r.host.Log.Print("ERRO", verdict.Error())
		}
		return err
	case verdict != nil:
		return verdict
	case r.failed.Load():
		return errFailed
	default:
		return nil
	}
}

// initialise makes the virtual users that the scenarios start with, as many at a time as there are processors.
func (r *run) initialise(ctx context.Context) error {
	seats := make(chan *executor.Runner) // one for each virtual user to make
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for runner := range seats {
				if r.reason() != nil {
					continue
				}
				vu, err := r.newVU()
				if err != nil {
					r.abort(err)
					continue
				}
				runner.Give(vu)
			}
		})
	}
	for _, runner := range r.runners {
		for range runner.Initial() {
			seats <- runner
		}
	}
	close(seats)
	wg.Wait()
	if err := r.reason(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errStopped
	}
	return nil
}

// scenarios runs all of them side by side and returns what ended them early, nil when they came to their end.
func (r *run) scenarios(parent context.Context) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	r.mu.Lock()
	r.stop = stop
	r.mu.Unlock()
	r.host.State.Started = time.Now()
	over := make(chan struct{})
	var watch, wg sync.WaitGroup
	watch.Go(func() { r.watch(over) })
	for _, runner := range r.runners {
		wg.Go(func() {
			if err := runner.Run(ctx, r.setupData); err != nil {
				r.abort(scriptError(err))
			}
		})
	}
	wg.Wait()
	r.elapsed = time.Since(r.host.State.Started)
	close(over)
	watch.Wait()
	if err := r.reason(); err != nil {
		return err
	}
	if parent.Err() != nil {
		return errStopped
	}
	return nil
}

// scriptError tells an error of the script from one of this program.
func scriptError(err error) error {
	var (
		unsupported *vm.Unsupported
		aborted     *vm.Aborted
		script      *scriptFault
	)
	switch {
	case errors.As(err, &unsupported), errors.As(err, &aborted), errors.As(err, &script), errors.Is(err, vm.ErrTimeout):
		return err
	default:
		return &scriptFault{err}
	}
}
