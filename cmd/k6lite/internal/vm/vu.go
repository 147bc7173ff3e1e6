package vm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

// VU is one virtual user: a JavaScript runtime and what belongs to it. One goroutine at a time may use it; only
// Interrupt may be called by others.
type VU struct {
	ID int // from 1; 0 for the runtimes of setup, teardown and handleSummary

	host    *Host
	rt      *sobek.Runtime
	loop    *loop
	client  *httpclient.Client
	rec     *metric.Recorder
	modules map[string]*builtinInstance
	exports *sobek.Object
	env     *sobek.Object
	fatal   error // ends the run; set by end
	inInit  bool

	expected *expectation // what http.setResponseCallback set; nil for none
	group    *metric.Group
	system   metric.Tags // group and scenario, over
	custom   metric.Tags // exec.vu.metrics.tags, over the tags of the scenario and the run
	shape    *shapes

	work      *Workload
	iterate   sobek.Callable
	data      sobek.Value // what setup returned, parsed
	iteration struct{ inInstance, inScenario, inTest int64 }

	mu      sync.Mutex // guards stopped, stop
	stopped bool
	stop    chan struct{}
}

// NewVU makes a virtual user and runs the script's init code in it.
func NewVU(host *Host, id int) (*VU, error) {
	vu := &VU{
		ID: id, host: host, rt: sobek.New(), modules: map[string]*builtinInstance{},
		rec: host.Registry.Recorder(), expected: defaultExpectation, group: host.Outline.Root(),
		stop: make(chan struct{}), inInit: true,
	}
	vu.loop = newLoop(vu)
	vu.shape = newShapes(vu.rt)
	vu.system = metric.Tags{Own: []metric.Tag{{Key: "group"}, {Key: "scenario"}}, Below: &vu.custom}
	config := httpclient.Config{}
	if o := host.Options; o != nil {
		config = httpclient.Config{
			UserAgent: o.UserAgent, InsecureSkipVerify: o.InsecureSkipTLSVerify, NoReuse: o.NoConnectionReuse,
		}
		vu.custom.Below = host.RunTags()
	}
	vu.client = httpclient.New(config)
	vu.setGlobals()
	if err := vu.evaluate(); err != nil {
		return nil, err
	}
	vu.inInit = false
	return vu, nil
}

// evaluate runs the init code: the main module and what it imports.
func (vu *VU) evaluate() error {
	s := vu.host.Script
	s.mu.Lock()
	s.users[vu.rt] = vu
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.users, vu.rt)
		s.mu.Unlock()
	}()
	promise := vu.rt.CyclicModuleRecordEvaluate(s.main, s.resolve)
	err := vu.loop.run()
	switch {
	case vu.fatal != nil:
		return vu.fatal
	case promise.State() == sobek.PromiseStateRejected:
		if inner, ok := promise.Result().Export().(error); ok {
			return vu.fault(inner)
		}
		return &Exception{describe(promise.Result())}
	case err != nil:
		return vu.fault(err)
	case promise.State() == sobek.PromiseStatePending:
		return errors.New("the init code waits for something that never comes")
	}
	vu.exports = vu.rt.NamespaceObjectFor(s.main)
	return nil
}

// Options returns the JSON of the exported options, nil when there are none.
func (vu *VU) Options() ([]byte, error) {
	v := vu.exports.Get("options")
	if v == nil || sobek.IsUndefined(v) || sobek.IsNull(v) {
		return nil, nil
	}
	text, err := vu.stringify(v)
	return []byte(text), err
}

// Has says whether the script exports a function of that name.
func (vu *VU) Has(name string) bool {
	_, ok := vu.function(name)
	return ok
}

func (vu *VU) function(name string) (sobek.Callable, bool) {
	v := vu.exports.Get(name)
	if v == nil {
		return nil, false
	}
	return sobek.AssertFunction(v)
}

// Call runs an exported lifecycle function (setup, teardown, handleSummary) with JSON arguments and returns the JSON of
// its result, "" for undefined. Metrics it makes carry the group of its name.
func (vu *VU) Call(ctx context.Context, name string, arguments ...string) (string, error) {
	result, err := vu.lifecycle(ctx, name, arguments)
	if err != nil || result == nil || sobek.IsUndefined(result) {
		return "", err
	}
	return vu.stringify(result)
}

func (vu *VU) lifecycle(ctx context.Context, name string, arguments []string) (sobek.Value, error) {
	call, ok := vu.function(name)
	if !ok {
		return nil, fmt.Errorf("the script exports no function %s", name)
	}
	var values []sobek.Value
	for _, text := range arguments {
		v, err := vu.parse([]byte(text))
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	group, err := vu.host.Outline.Group(vu.host.Outline.Root(), name)
	if err != nil {
		return nil, err
	}
	vu.enter(group)
	defer vu.enter(vu.host.Outline.Root())
	defer context.AfterFunc(ctx, vu.Interrupt)()
	result, err := vu.finish(call(sobek.Undefined(), values...))
	if errors.Is(err, ErrInterrupted) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s: %w", name, ErrTimeout)
	}
	return result, err
}

// finish waits for everything a call has set going and resolves the promise it may have returned.
func (vu *VU) finish(result sobek.Value, err error) (sobek.Value, error) {
	if err == nil {
		err = vu.loop.run()
	}
	if err == nil && vu.fatal != nil {
		err = vu.fatal
	}
	if err != nil {
		vu.discard()
		return nil, vu.fault(err)
	}
	promise, ok := export[*sobek.Promise](result)
	if !ok {
		return result, nil
	}
	switch promise.State() {
	case sobek.PromiseStateFulfilled:
		return promise.Result(), nil
	case sobek.PromiseStateRejected: // and somebody handled it
		return nil, &Exception{"Uncaught (in promise) " + describe(promise.Result())}
	default:
		return nil, errors.New("waits for a promise that nothing will ever resolve")
	}
}

// discard drops what an iteration that ended early has left behind.
func (vu *VU) discard() {
	vu.client.Cut() // asynchronous requests end now
	vu.loop.reset()
	if !vu.halted() {
		vu.client.Resume()
	}
	vu.enter(vu.host.Outline.Root())
}

func (vu *VU) enter(g *metric.Group) {
	vu.group = g
	vu.system.Own[0].Value = g.Path
}

// Attach prepares the virtual user for iterations of a scenario; data is the JSON that setup returned, "" for none.
func (vu *VU) Attach(work *Workload, data string) error {
	vu.work = work
	call, ok := vu.function(work.Exec)
	if !ok {
		return fmt.Errorf("scenario %s: the script exports no function %s", work.Name, work.Exec)
	}
	vu.iterate = call
	vu.iteration.inScenario = -1
	vu.iteration.inInstance = -1
	vu.custom = metric.Tags{Below: work.Tags}
	vu.system.Own[1].Value = work.Name
	for k, v := range work.Env {
		must(vu.env.Set(k, v))
	}
	vu.data = sobek.Undefined()
	if data == "" {
		return nil
	}
	var err error
	vu.data, err = vu.parse([]byte(data))
	return err
}

// Outcome is how an iteration ended.
type Outcome uint8

// The outcomes. An iteration that threw is complete: the error was reported.
const (
	Complete Outcome = iota
	Interrupted
)

// Iterate runs one iteration, the inTest-th of its scenario, and records it.
func (vu *VU) Iterate(inTest int64) Outcome {
	o := vu.host.Options
	vu.iteration.inTest = inTest
	vu.iteration.inScenario++
	vu.iteration.inInstance++
	vu.host.State.Active.Add(1)
	defer vu.host.State.Active.Add(-1)
	began := time.Now()
	_, err := vu.finish(vu.iterate(sobek.Undefined(), vu.data))
	elapsed := time.Since(began)
	if err != nil && (errors.Is(err, ErrInterrupted) || vu.fatal != nil || vu.halted()) {
		vu.host.State.Interrupted.Add(1)
		return Interrupted
	}
	if err != nil {
		vu.host.Log.Print("ERRO", err.Error())
	}
	if rest := o.MinIterationDuration - elapsed; rest > 0 {
		vu.pause(rest)
	}
	if o.NoVUConnectionReuse {
		vu.client.CloseIdle()
	}
	vu.host.State.Completed.Add(1)
	b := vu.host.Builtin
	vu.rec.Add(&vu.system,
		metric.Sample{Metric: b.Iterations, Value: 1},
		metric.Sample{Metric: b.IterationDuration, Value: milliseconds(elapsed)})
	return Complete
}

// RecordLifecycle records the duration of setup or teardown, as k6 documents for iteration_duration.
func (vu *VU) RecordLifecycle(name string, elapsed time.Duration) {
	tags := &metric.Tags{
		Own:   []metric.Tag{{Key: "group", Value: metric.Separator + name}},
		Below: &vu.custom,
	}
	vu.rec.Add(tags, metric.Sample{Metric: vu.host.Builtin.IterationDuration, Value: milliseconds(elapsed)})
}

// Interrupt ends the iteration on its way, and at once every later one, until Resume.
func (vu *VU) Interrupt() {
	vu.mu.Lock()
	defer vu.mu.Unlock()
	if vu.stopped {
		return
	}
	vu.stopped = true
	vu.rt.Interrupt(ErrInterrupted) // before what wakes it: a sleeper that wakes must not take its sleep for over
	vu.client.Cut()
	close(vu.stop)
}

// Resume makes the virtual user usable again after Interrupt.
func (vu *VU) Resume() {
	vu.mu.Lock()
	defer vu.mu.Unlock()
	if !vu.stopped {
		return
	}
	vu.stopped = false
	vu.stop = make(chan struct{})
	vu.rt.ClearInterrupt()
	vu.client.Resume()
}

// Close gives up the connections.
func (vu *VU) Close() { vu.client.CloseIdle() }

func (vu *VU) halt() <-chan struct{} {
	vu.mu.Lock()
	defer vu.mu.Unlock()
	return vu.stop
}

func (vu *VU) halted() bool {
	vu.mu.Lock()
	defer vu.mu.Unlock()
	return vu.stopped
}

// pause sleeps, and no longer than the virtual user may run.
func (vu *VU) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-vu.halt():
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
