package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/job"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// patience bounds every wait for what must happen.
const patience = 30 * time.Second

// office is a database and the processes that run jobs on it.
type office struct {
	place
	database string
	service  *inventory.Service
	tick     time.Time
}

func newOffice(t *testing.T) *office {
	t.Helper()
	database := sandbox.Database(t)
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &office{place{pool: pool}, database, openStock(t, database), time.Now().Truncate(time.Second)}
}

// runner is one process, with a lease that outlasts the test.
func (o *office) runner(t *testing.T, registry prometheus.Registerer, jobs ...job.Job) *job.Runner {
	t.Helper()
	locker := lock.NewFenced(pglock.New(o.pool), lock.TTL(time.Minute))
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return job.New(job.Config{Stock: o.service, Locker: locker, Jobs: jobs, Registerer: registry})
}

// each is a job of every second.
func each(limit time.Duration, work job.Work) job.Job {
	return job.Job{Name: jobName, Schedule: job.Every(time.Second), Limit: limit, Work: work}
}

func succeed(context.Context, stock.Fence) (int64, error) { return 1, nil }

// last run of the job.
func (o *office) last(t *testing.T) stock.Run {
	t.Helper()
	runs, err := o.service.Runs(t.Context(), jobName, 1)
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs: %+v, %v", runs, err)
	}
	return runs[0]
}

// wantLast checks how the last run ended.
func (o *office) wantLast(t *testing.T, at time.Time, want stock.RunOutcome, attempts int, failure string) {
	t.Helper()
	r := o.last(t)
	if !r.ScheduledAt.Equal(at) || r.Outcome != want || r.Attempts != attempts || !strings.Contains(r.Error, failure) {
		t.Errorf("last run %+v, want %s, %s, %d attempts, %q", r, at, want, attempts, failure)
	}
}

// mustRun runs what is due, as soon as nobody else is at it.
func mustRun(t *testing.T, r *job.Runner, at time.Time) {
	t.Helper()
	err := lock.ErrHeld
	for end := time.Now().Add(patience); errors.Is(err, lock.ErrHeld) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = r.RunDue(t.Context(), at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func arrives[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("did not happen: %s", what)
	}
	return v
}

// series is the sum of a metric's series that have the outcome; all of them if it is empty.
func series(t *testing.T, registry *prometheus.Registry, name, outcome string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			counts := family.GetName() == name && outcome == ""
			for _, label := range metric.GetLabel() {
				counts = counts || family.GetName() == name && label.GetValue() == outcome
			}
			if counts {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Work that does not end when its time is over, nor looks at its ctx: the run has failed, others go on without it, and
// what it writes then is refused.
func TestRunThatTakesTooLongIsOver(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	expiredHold(t, o.service, &o.place)
	registry := prometheus.NewRegistry()
	over, goOn, wrote := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	stuck := o.runner(t, registry, each(200*time.Millisecond, func(ctx context.Context, f stock.Fence) (int64, error) {
		<-ctx.Done()
		close(over)
		<-goOn
		_, err := o.service.Sweep(context.Background(), f)
		wrote <- err
		return 0, err
	}))
	ran := make(chan error, 1)
	go func() { ran <- stuck.RunDue(context.Background(), o.tick) }()
	arrives(t, "the end of the work's ctx", over)
	for end := time.Now().Add(patience); o.last(t).Outcome != stock.RunFailed; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the run goes on: %+v", o.last(t))
		}
	}
	o.wantLast(t, o.tick, stock.RunFailed, 1, "longer than its limit")

	next := o.tick.Add(time.Second) // another process has it, and the work is still stuck
	mustRun(t, o.runner(t, nil, each(time.Minute, succeed)), next)
	o.wantLast(t, next, stock.RunDone, 1, "")

	close(goOn)
	if err := arrives(t, "the late write", wrote); !errors.Is(err, stock.ErrStale) {
		t.Errorf("a write after the deadline: %v", err)
	}
	if err := arrives(t, "the end of the run", ran); err != nil {
		t.Errorf("the stuck run: %v", err)
	}
	if held := o.scalar(t, "SELECT sum(held) FROM items"); held != 1 {
		t.Errorf("%d are held: the late write had its effect", held)
	}
	if n := series(t, registry, "holdfast_job_runs_total", "failed"); n != 1 {
		t.Errorf("%v failed runs are counted", n)
	}
}

// Nobody else wants the fence, yet a write after the deadline is refused: it is the ledger's, too.
func TestWriteAfterTheDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	expiredHold(t, o.service, &o.place)
	var wrote error
	mustRun(t, o.runner(t, nil, each(200*time.Millisecond, func(ctx context.Context, f stock.Fence) (int64, error) {
		<-ctx.Done()
		_, wrote = o.service.Sweep(context.Background(), f)
		return 0, nil // as if nothing was wrong
	})), o.tick)
	if !errors.Is(wrote, stock.ErrStale) {
		t.Errorf("a write after the deadline: %v", wrote)
	}
	o.wantLast(t, o.tick, stock.RunFailed, 1, "longer than its limit")
}

// A run that fails is not tried again, one that panics takes nobody with it; the next tick is run.
func TestFailureIsFinalForItsTick(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]job.Work{
		"no luck":     func(context.Context, stock.Fence) (int64, error) { return 0, errors.New("no luck") },
		"panic: oops": func(context.Context, stock.Fence) (int64, error) { panic("oops") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			registry := prometheus.NewRegistry()
			work := fail
			broken := o.runner(t, registry, each(time.Minute, func(ctx context.Context, f stock.Fence) (int64, error) { return work(ctx, f) }))
			mustRun(t, broken, o.tick)
			o.wantLast(t, o.tick, stock.RunFailed, 1, name)
			work = succeed
			for _, r := range []*job.Runner{broken, o.runner(t, nil, each(time.Minute, succeed))} {
				mustRun(t, r, o.tick)
			}
			o.wantLast(t, o.tick, stock.RunFailed, 1, name)
			next := o.tick.Add(time.Second)
			mustRun(t, broken, next)
			o.wantLast(t, next, stock.RunDone, 1, "")
			failed, done := series(t, registry, "holdfast_job_runs_total", "failed"), series(t, registry, "holdfast_job_runs_total", "done")
			if failed != 1 || done != 1 {
				t.Errorf("%v failed and %v done runs are counted", failed, done)
			}
		})
	}
}

// A process that is told to stop leaves its run as it is, and another one takes it over.
func TestStoppedRunIsTakenOver(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	registry := prometheus.NewRegistry()
	began := make(chan struct{})
	stopping := o.runner(t, registry, each(time.Minute, func(ctx context.Context, _ stock.Fence) (int64, error) {
		close(began)
		<-ctx.Done()
		return 0, ctx.Err()
	}))
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); stopping.Run(ctx) }()
	arrives(t, "the run", began)
	stop()
	arrives(t, "the end of the runner", stopped)
	tick := o.last(t).ScheduledAt
	o.wantLast(t, tick, stock.RunRunning, 1, "")
	if n := series(t, registry, "holdfast_job_runs_total", "abandoned"); n != 1 {
		t.Errorf("%v abandoned runs are counted", n)
	}
	mustRun(t, o.runner(t, nil, each(time.Minute, succeed)), tick)
	o.wantLast(t, tick, stock.RunDone, 2, "")
}

// Ticks that nobody ran are run once, late, as the latest of them; a process whose clock is behind finds that done.
func TestMissedTicksAreRunOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	runs := 0
	count := func(context.Context, stock.Fence) (int64, error) { runs++; return 0, nil }
	one, other := o.runner(t, nil, each(time.Minute, count)), o.runner(t, nil, each(time.Minute, count))
	mustRun(t, one, o.tick)
	late := o.tick.Add(10*time.Second + 300*time.Millisecond)
	mustRun(t, one, late)
	mustRun(t, one, late)
	mustRun(t, other, late)
	mustRun(t, other, o.tick.Add(5*time.Second))
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
	o.wantLast(t, o.tick.Add(10*time.Second), stock.RunDone, 1, "")
}

// answer asks a runner as the admin listener would.
func answer(t *testing.T, r *job.Runner) (int, []job.Status) {
	t.Helper()
	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/jobs", http.NoBody))
	var body struct{ Jobs []job.Status }
	if recorder.Code == http.StatusOK {
		if err := json.Unmarshal(recorder.Body.Bytes(), &body); err != nil {
			t.Fatalf("%v: %s", err, recorder.Body)
		}
	}
	return recorder.Code, body.Jobs
}

func TestStatusTellsWhoIsAtIt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var during []job.Status
	var r *job.Runner
	r = o.runner(t, nil, each(time.Minute, func(context.Context, stock.Fence) (int64, error) {
		_, during = answer(t, r)
		return 3, nil
	}), job.Job{Name: "never", Work: succeed})
	mustRun(t, r, o.tick)
	if len(during) != 2 || during[0].Holder == nil || during[0].Holder.Owner.Meta != o.tick.UTC().Format(time.RFC3339Nano) ||
		len(during[0].Runs) != 1 || during[0].Runs[0].Outcome != stock.RunRunning || during[0].Runs[0].EndedAt != nil ||
		during[0].Runs[0].Token != stock.Token(during[0].Holder.Token) {
		t.Errorf("during the run: %+v", during)
	}
	code, after := answer(t, r)
	if code != http.StatusOK || len(after) != 2 {
		t.Fatalf("%d, %+v", code, after)
	}
	tested, never := after[0], after[1]
	if tested.Holder != nil || tested.HolderUnknown != "" || tested.Schedule != "every 1s" || tested.Next.Before(o.tick) ||
		tested.Runs[0].Outcome != stock.RunDone || tested.Runs[0].Rows != 3 || tested.Runs[0].EndedAt == nil {
		t.Errorf("after the run: %+v", tested)
	}
	if never.Schedule != "" || !never.Next.IsZero() || len(never.Runs) != 0 {
		t.Errorf("a job that is never run: %+v", never)
	}
}

// Locks that are away hide no run; a ledger that is away is said to be.
func TestStatusOfWhatIsAway(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	away, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	mustRun(t, o.runner(t, nil, each(time.Minute, succeed)), o.tick)
	registry := prometheus.NewRegistry()
	locker := lock.NewFenced(pglock.New(away))
	defer func() { _ = locker.Close(context.Background()) }()
	r := job.New(job.Config{Stock: o.service, Locker: locker, Jobs: []job.Job{each(time.Minute, succeed)}, Registerer: registry})
	code, jobs := answer(t, r)
	if code != http.StatusOK || len(jobs) != 1 || jobs[0].HolderUnknown == "" || len(jobs[0].Runs) != 1 {
		t.Errorf("without the locks: %d, %+v", code, jobs)
	}
	if err := r.RunDue(t.Context(), o.tick.Add(time.Second)); err == nil {
		t.Error("a tick was run without its lease")
	}
	if n := series(t, registry, "holdfast_job_lock_errors_total", ""); n != 1 {
		t.Errorf("%v lock errors are counted", n)
	}
	gone, err := inventory.Open(inventory.Config{Ledger: ledger.Config{URL: o.database}})
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	r = job.New(job.Config{Stock: gone, Locker: locker, Jobs: []job.Job{each(time.Minute, succeed)}})
	if code, jobs := answer(t, r); code != http.StatusServiceUnavailable {
		t.Errorf("without the ledger: %d, %+v", code, jobs)
	}
}
