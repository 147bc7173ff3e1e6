package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// program says what to run, as whom, and where its files are.
type program struct {
	path string
	args []string
	env  []string            // beyond the few variables every server gets
	dir  string              // where its files are; arguments name files below it by their full path
	user *syscall.Credential // nil: as ourselves
}

// process is a running child. When this process ends, however it ends, the child ends too.
type process struct {
	pid      int
	log      string
	logStart int64         // size of the log when this run began
	done     chan struct{} // closed when the child has been reaped
}

// command gives the child a small environment of its own: nothing set for another server (PGDATA, PGHOST, LANG …)
// reaches it, and its messages are in English. The caller calls release when the child has started or will not.
func (p program) command() (cmd *exec.Cmd, release func(), err error) {
	opened, dir, err := passage(p.dir, p.user)
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command(p.path)
	for _, arg := range p.args {
		cmd.Args = append(cmd.Args, strings.ReplaceAll(arg, p.dir, dir))
	}
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TZ=UTC"}, p.env...)
	cmd.SysProcAttr = childAttributes(p.user)
	if opened == nil {
		return cmd, func() {}, nil
	}
	cmd.ExtraFiles = []*os.File{opened}
	return cmd, func() { _ = opened.Close() }, nil
}

// start runs the program in the background, its output going to server.log in its directory.
func (p program) start() (*process, error) {
	log := filepath.Join(p.dir, "server.log")
	logFile, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	size, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd, release, err := p.command()
	if err != nil {
		return nil, err
	}
	defer release()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	child := &process{log: log, logStart: size, done: make(chan struct{})}
	started := make(chan error, 1)
	go child.attend(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.path, err)
	}
	return child, nil
}

// attend starts the child, says so, and reaps it.
func (p *process) attend(cmd *exec.Cmd, started chan<- error) {
	// Linux delivers the parent-death signal when the forking *thread* ends, not the process. This thread stays with
	// the child until it has been reaped, so the signal can only mean that we are gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	release, err := tie(p)
	if err != nil {
		_ = cmd.Process.Kill() // a child that would outlive us is not to be had
	}
	started <- err
	_ = cmd.Wait() // how it ended is in its log
	if err == nil {
		release()
	}
	close(p.done)
}

// run runs the program to its end; the error carries the tail of what it printed.
func (p program) run() error {
	cmd, release, err := p.command()
	if err != nil {
		return err
	}
	defer release()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", p.path, err, tail(string(out)))
	}
	return nil
}

// ended reports whether the child is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// output is what this run of the child wrote to its log, at most the first MiB.
func (p *process) output() string {
	file, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	written, err := io.ReadAll(io.NewSectionReader(file, p.logStart, 1<<20))
	if err != nil {
		return err.Error()
	}
	return string(written)
}

// tail is the end of a log that still fits into an error message.
func tail(text string) string {
	const limit = 2 << 10
	text = strings.TrimSpace(text)
	return text[max(0, len(text)-limit):]
}
