package job_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/job"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/backends"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// childConfig is the variable that makes the test binary a runner. It is told on its standard input what time it is and
// whether to go on, and says on its standard output what it did:
//
//	in:  tick <unix nanoseconds>   run what is due then
//	     go                        the work may write
//	out: working <token>           the work has begun, and waits for "go"
//	     wrote <error>             what its write came to
//	     ran <error>               what the tick came to
const childConfig = "HOLDFAST_TEST_RUNNER"

// childSetup is what a runner needs to know.
type childSetup struct {
	Locks   backends.Config
	TTL     time.Duration
	Waits   bool // the work waits for "go" before it writes, and after
	Every   time.Duration
	Counter bool // the work counts ticks in a table of the test's
}

const jobName = "tested"

func child() int {
	var setup childSetup
	if err := json.Unmarshal([]byte(os.Getenv(childConfig)), &setup); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := setup.run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (setup *childSetup) run(in io.Reader, out io.Writer) error {
	ctx := context.Background()
	setup.Locks.Dial = gate.Dial
	locks, err := backends.Open(ctx, setup.Locks)
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }() // the process ends
	locker := lock.NewFenced(locks.Chosen, lock.TTL(setup.TTL))
	service, err := inventory.Open(inventory.Config{Ledger: ledger.Config{URL: setup.Locks.Database}})
	if err != nil {
		return err
	}
	defer service.Close()
	pool, err := pgxpool.New(ctx, setup.Locks.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	w := &childWork{setup: setup, service: service, pool: pool, lines: bufio.NewScanner(in), out: out}
	w.runner = job.New(job.Config{Stock: service, Locker: locker, Jobs: []job.Job{{
		Name: jobName, Schedule: job.Every(setup.Every), Limit: time.Hour, Work: w.do,
	}}})
	for w.lines.Scan() {
		text, ok := strings.CutPrefix(w.lines.Text(), "tick ")
		nanoseconds, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("told %q", w.lines.Text())
		}
		err = w.attend(ctx, time.Unix(0, nanoseconds))
		fmt.Fprintln(out, "ran", strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	}
	return w.lines.Err()
}

type childWork struct {
	setup   *childSetup
	runner  *job.Runner
	began   bool // since the last tick
	service *inventory.Service
	pool    *pgxpool.Pool
	lines   *bufio.Scanner
	out     io.Writer
}

// attend runs a tick as a service does: it tries until the work has begun here, or somebody has ended the tick.
func (w *childWork) attend(ctx context.Context, tick time.Time) error {
	for w.began = false; ; time.Sleep(10 * time.Millisecond) {
		err := w.runner.RunDue(ctx, tick)
		if err == nil || w.began {
			return err
		}
		if !errors.Is(err, lock.ErrHeld) {
			fmt.Fprintln(os.Stderr, "not yet:", err)
		}
	}
}

// do releases what is due, under the fence, as the job that expires holds does.
func (w *childWork) do(_ context.Context, fence stock.Fence) (int64, error) {
	w.began = true
	if w.setup.Counter {
		// The fence in a transaction of the work, as anybody's work may have it.
		tag, err := w.pool.Exec(context.Background(), `WITH newest AS (SELECT FROM fences WHERE key = $1 AND token = $2 FOR SHARE)
			INSERT INTO effects (token) SELECT $2 FROM newest`, fence.Key, fence.Token)
		return tag.RowsAffected(), err
	}
	fmt.Fprintln(w.out, "working", fence.Token)
	if w.setup.Waits && !w.lines.Scan() {
		return 0, errors.New("nobody says go")
	}
	// Whatever its ctx says: a process that was paused has not looked at it since.
	n, err := w.service.Sweep(context.Background(), fence)
	fmt.Fprintln(w.out, "wrote", n, err)
	return n, err
}

// runnerProcess is a child that runs the job.
type runnerProcess struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func startRunner(t *testing.T, setup childSetup) *runnerProcess {
	t.Helper()
	text, err := json.Marshal(setup)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &runnerProcess{cmd: exec.Command(exe), lines: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), childConfig+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	})
	t.Cleanup(func() {
		_ = p.in.Close() // it ends when there is nothing left to read
		go func() {
			for range p.lines { // until it has ended
			}
		}()
		reading.Wait()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("the runner: %v", err)
		}
	})
	return p
}

func (p *runnerProcess) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
}

func (p *runnerProcess) tick(t *testing.T, at time.Time) {
	t.Helper()
	p.say(t, fmt.Sprint("tick ", at.UnixNano()))
}

// hear waits for a line that begins so and returns its rest.
func (p *runnerProcess) hear(t *testing.T, prefix string) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		rest, found := strings.CutPrefix(line, prefix+" ")
		if !ok || !found {
			t.Fatalf("the runner says %q (%v), want %q", line, ok, prefix)
		}
		return rest
	case <-time.After(time.Minute):
		t.Fatalf("the runner does not say %q", prefix)
	}
	return ""
}

// hearToken waits until the work has begun, and returns its token.
func (p *runnerProcess) hearToken(t *testing.T) int64 {
	t.Helper()
	token, err := strconv.ParseInt(p.hear(t, "working"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (p *runnerProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
