package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait for something that should happen soon: a child's next step, a key that expires.
const patience = 45 * time.Second

// Role is what a child process does. It says how far it is with [Child.Say] and waits for its parent with
// [Child.Await]. An error ends the process, and the parent's next wait for it fails.
type Role func(ctx context.Context, c *Child) error

// The environment of a child: which role of which experiment, with what arguments.
const (
	roleVariable = "HOLDFAST_LAB_ROLE"
	argsVariable = "HOLDFAST_LAB_ARGS"
)

// step is a line between parent and child.
type step struct {
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
}

// Process is a child of the lab that plays a role. Its methods are for one goroutine.
type Process struct {
	name    string
	stage   *Stage
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stopped bool
	steps   chan step     // closed when the child has ended
	done    chan struct{} // closed when it has been reaped
	err     error         // of its end; valid when done is closed
}

// Process starts a child that plays a role of the experiment. It ends with the case.
func (s *Stage) Process(name, role string, args any) (*Process, error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{name: name, stage: s, cmd: exec.Command(program), steps: make(chan step, 64), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+s.experiment.Name+"/"+role, argsVariable+"="+string(encoded))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go p.attend(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.onEnd(p.Kill)
	return p, nil
}

// attend starts the child, passes on what it says, and reaps it. Its thread stays with the child: the parent-death
// signal is sent when the forking thread ends.
func (p *Process) attend(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var complaints bytes.Buffer
	p.cmd.Stderr = &complaints
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	started <- err
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var said step
		if json.Unmarshal(lines.Bytes(), &said) == nil {
			p.steps <- said
		}
	}
	if err := p.cmd.Wait(); err != nil {
		p.err = fmt.Errorf("%w: %s", err, strings.TrimSpace(complaints.String()))
	}
	close(p.steps)
	close(p.done)
}

// Expect waits until the child says that it is at a step, and returns what it said with it.
func (p *Process) Expect(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case said, ok := <-p.steps:
			switch {
			case !ok:
				return "", fmt.Errorf("%s ended before it was at %q: %w", p.name, name, p.end())
			case said.Name == name:
				return said.Text, nil
			}
		case <-ctx.Done():
			return "", fmt.Errorf("%s does not get to %q: %w", p.name, name, ctx.Err())
		}
	}
}

// end is how the child ended, once it has.
func (p *Process) end() error {
	<-p.done
	if p.err == nil {
		return errors.New("its role was over")
	}
	return p.err
}

// Tell lets the child go on from [Child.Await]. A child that stands still hears it when it goes on.
func (p *Process) Tell(name string) error {
	line, err := json.Marshal(step{Name: name})
	if err != nil {
		return err
	}
	_, err = p.stdin.Write(append(line, '\n'))
	return err
}

// Stop makes the child stand still, as a long garbage collection, a page fault or a moved virtual machine does, and
// returns when it does.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	p.stopped = true
	p.stage.Begin(p.name, Paused, "SIGSTOP")
	return p.stage.Until(ctx, p.name+" stands still", func() (bool, error) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
		return bytes.Contains(stat, []byte(") T ")), err
	})
}

// Continue lets a stopped child go on; it does nothing to one that is not stopped.
func (p *Process) Continue() error {
	if !p.stopped {
		return nil
	}
	p.stopped = false
	p.stage.End(p.name, Paused)
	p.stage.Mark(p.name, Plain, "SIGCONT")
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// Kill ends the child at once, kill -9.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	for range p.steps {      // nobody listens any more
	}
	<-p.done
}

// Child is a child's side of [Process].
type Child struct {
	args string

	mu    sync.Mutex // protects out
	out   *json.Encoder
	heard *bufio.Scanner // of whoever awaits, one at a time
}

// PlayRole plays the role if this process is a child of a lab, and reports whether it was; it never returns before the
// role is over. A program that runs experiments calls it first of all.
func PlayRole() (played bool) {
	name, ok := os.LookupEnv(roleVariable)
	if !ok {
		return false
	}
	c := &Child{args: os.Getenv(argsVariable), out: json.NewEncoder(os.Stdout), heard: bufio.NewScanner(os.Stdin)}
	experiment, role, _ := strings.Cut(name, "/")
	for _, e := range append(All(), layersExperiment()) {
		if play := e.Roles[role]; e.Name == experiment && play != nil {
			if err := play(context.Background(), c); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return true
		}
	}
	fmt.Fprintf(os.Stderr, "there is no role %q\n", name)
	os.Exit(2)
	return true
}

// Args decodes what the parent gave.
func (c *Child) Args(into any) error { return json.Unmarshal([]byte(c.args), into) }

// Say tells the parent that the child is at a step.
func (c *Child) Say(name, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(step{Name: name, Text: fmt.Sprintf(format, args...)}); err != nil {
		os.Exit(1) // the parent is gone
	}
}

// Await waits until the parent says to go on.
func (c *Child) Await(name string) error {
	for c.heard.Scan() {
		var said step
		if err := json.Unmarshal(c.heard.Bytes(), &said); err != nil {
			return err
		}
		if said.Name == name {
			return nil
		}
	}
	return fmt.Errorf("the parent is gone before it said %q", name)
}
