package sandbox

import (
	"errors"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// guard is a shell that kills processes when we end without releasing it: its standard input is a pipe whose other
// end only we hold, and the kernel closes that end however we die.
type guard struct {
	shell *exec.Cmd
	pipe  io.WriteCloser
}

// newGuard guards processes. They must not be reaped before release, or their ids may mean others.
func newGuard(pids []int) (*guard, error) {
	args := []string{"-c", `read _ || kill -KILL "$@"`, "guard"}
	for _, pid := range pids {
		args = append(args, strconv.Itoa(pid))
	}
	shell := exec.Command("/bin/sh", args...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of the reach of Ctrl-C
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return &guard{shell, pipe}, nil
}

// release ends the guard and spares the processes.
func (g *guard) release() error {
	_, err := io.WriteString(g.pipe, "\n")
	return errors.Join(err, g.pipe.Close(), g.shell.Wait())
}
