package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit   = 2 * time.Minute  // crash recovery of a large log included
	stopLimit    = 20 * time.Second // a shutdown checkpoint of a large server included
	pauseLimit   = 5 * time.Second
	lingerLimit  = 5 * time.Second // for processes of a killed server to notice
	pollInterval = 2 * time.Millisecond
)

// ErrPortTaken is the reason why a server does not start on the port that its configuration names.
var ErrPortTaken = errors.New("port is taken")

// server is what all servers have in common: a directory, a port, and a child process that can be stopped, killed,
// paused and started again.
type server struct {
	name    string // for error messages
	dir     *directory
	port    int                                            // 0 until the first launch if it is ours to choose
	program func() (program, error)                        // how to run it on port
	ready   func(ctx context.Context, child *process) bool // does that very child answer?
	quit    syscall.Signal                                 // asks for an orderly shutdown

	mu     sync.Mutex
	child  *process // the last one started, running or not; guarded by mu
	guard  *guard   // while paused; guarded by mu
	closed bool     // guarded by mu
}

// start launches the server for the first time, on its port or on one that choose thinks is free.
func (s *server) start(ctx context.Context, choose func() (int, error)) error {
	if s.port != 0 {
		return s.Restart(ctx)
	}
	// Between choosing a port and the server's bind another process may take it.
	const attempts = 10
	var err error
	for range attempts {
		if s.port, err = choose(); err != nil {
			return err
		}
		if err = s.Restart(ctx); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}

// Port is the TCP port of the server on 127.0.0.1. It stays the same over restarts.
func (s *server) Port() int { return s.port }

// Addr is the address of the server, host:port.
func (s *server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Pid is the id of the server's main process, the last one if it does not run any more.
func (s *server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.pid
}

// Done is closed when the server's current main process has ended, for whatever reason.
func (s *server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.done
}

// Restart starts the server on its old data and port; if it runs it is shut down in order first. It returns when
// the server answers.
func (s *server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("restart %s: it was stopped and has given its directory up", s.name)
	}
	if err := s.shutdownLocked(ctx); err != nil {
		return err
	}
	return s.launchLocked(ctx)
}

// Stop shuts the server down in order and gives its directory up: a temporary one is removed. It cannot be
// restarted after that. A server that does not end in time is killed, and the error says so.
func (s *server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.shutdownLocked(ctx), s.dir.close())
}

// Kill ends the server at once, as a power cut of its machine would, and returns when all its processes are gone.
// What the server had handed to the kernel survives: Kill does not lose the page cache.
func (s *server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

// Pause freezes every process of the server: connections stay open and nothing answers. It returns when all of
// them stand still.
func (s *server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pauseLocked(); err != nil {
		return fmt.Errorf("pause %s: %w", s.name, err)
	}
	return nil
}

func (s *server) pauseLocked() error {
	if s.guard != nil {
		return nil // paused already
	}
	if s.child.ended() {
		return errors.New("not running")
	}
	// The main process first: a process that stands still starts no others.
	if err := freeze(s.child.pid); err != nil {
		return err
	}
	pids := s.pidsLocked()
	// Frozen processes do not notice that their parent is gone: if we die now, the guard ends them.
	var err error
	if s.guard, err = newGuard(pids); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := freeze(pid); err != nil {
			return err
		}
	}
	return nil
}

// Resume lets a paused server go on. It does nothing to one that is not paused.
func (s *server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumeLocked()
}

func (s *server) resumeLocked() error {
	if s.guard == nil {
		return nil
	}
	err := s.guard.release()
	s.guard = nil
	for _, pid := range s.pidsLocked() {
		_ = syscall.Kill(pid, syscall.SIGCONT) // gone is fine
	}
	return err
}

// pidsLocked lists the processes of a running server, the main one last.
func (s *server) pidsLocked() []int {
	if s.child == nil || s.child.ended() {
		return nil
	}
	return append(descendants(s.child.pid), s.child.pid)
}

func (s *server) killLocked() {
	defer func() { _ = s.resumeLocked() }() // of what was paused only the guard is left
	if s.child == nil || s.child.ended() {
		return
	}
	_ = freeze(s.child.pid) // so that it starts nothing while we look
	pids := s.pidsLocked()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is fine
	}
	<-s.child.done
	for _, pid := range pids {
		await(func() bool { return gone(pid) }, stopLimit) // nothing survives SIGKILL, it only takes a moment
	}
}

// shutdownLocked ends a running server in order.
func (s *server) shutdownLocked(ctx context.Context) error {
	if s.child == nil || s.child.ended() {
		return s.resumeLocked() // of what was paused only the guard is left
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	_ = syscall.Kill(s.child.pid, s.quit) // gone is fine
	err := s.resumeLocked()
	select {
	case <-s.child.done:
		return err
	case <-ctx.Done():
		s.killLocked()
		return fmt.Errorf("%s did not shut down in time and was killed: %w", s.name, ctx.Err())
	}
}

// launchLocked starts the child and waits until it answers.
func (s *server) launchLocked(ctx context.Context) error {
	program, err := s.program()
	if err != nil {
		return err
	}
	if s.child, err = program.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !s.ready(ctx, s.child) {
		select {
		case <-tick.C:
		case <-s.child.done:
			return s.startError("ended", s.child.output())
		case <-ctx.Done():
			output := s.child.output()
			s.killLocked()
			return s.startError(ctx.Err().Error(), output)
		}
	}
	return nil
}

func (s *server) startError(why, output string) error {
	err := fmt.Errorf("start %s on port %d: %s; the end of its log:\n%s", s.name, s.port, why, tail(output))
	if strings.Contains(strings.ToLower(output), "address already in use") {
		return fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return err
}

// freeze stops a process and waits until it stands still; one that is gone is fine.
func freeze(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return err
	}
	if !await(func() bool { return stopped(pid) }, pauseLimit) {
		return fmt.Errorf("process %d does not stop", pid)
	}
	return nil
}

// await polls until a condition holds, at most for the given time, and reports whether it does.
func await(holds func() bool, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(pollInterval / 10) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// freePort finds a port nobody listens on. The range lies below the ports that systems hand out for outgoing
// connections (from 32768 on Linux, 49152 elsewhere), holds no default port of any of our servers, and leaves
// room for the bus of a Redis Cluster, 10,000 above.
func freePort() (int, error) {
	const first, last, attempts = 10_100, 21_999, 100
	var err error
	for range attempts {
		port := first + rand.IntN(last-first+1)
		var listener net.Listener
		if listener, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
