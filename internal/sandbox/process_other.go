//go:build unix && !linux

package sandbox

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes puts the child in a process group of its own, so that Ctrl-C in a terminal reaches us and not the
// server behind our back.
func childAttributes(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: account}
}

// passage is the directory itself here: another user has to be able to get there.
func passage(dir string, _ *syscall.Credential) (opened *os.File, name string, err error) {
	return nil, dir, nil
}

// tie ends the child when we die, by a guard: there is no parent-death signal here. The children of a Postgres server
// notice the end of their parent by themselves.
func tie(child *process) (release func(), err error) {
	g, err := newGuard([]int{child.pid})
	if err != nil {
		return nil, err
	}
	return func() { _ = g.release() }, nil // the child is gone, and so may be its guard
}

// descendants lists the children of a process, their children and so on. Postgres puts every backend into a
// session of its own, so a process group does not find them.
func descendants(pid int) []int {
	children := map[int][]int{}
	table, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			child, _ := strconv.Atoi(fields[0])
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], child)
		}
	}
	found := []int{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// state is the state letter of a process as ps prints it, empty if there is none.
func state(pid int) string {
	out, _ := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out))
}

// stopped reports whether a process stands still, or is gone.
func stopped(pid int) bool { return strings.HasPrefix(state(pid), "T") || gone(pid) }

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool { return state(pid) == "" || strings.HasPrefix(state(pid), "Z") }

// processesIn lists the processes whose working directory is dir; known is false where we cannot tell, as here.
func processesIn(string) (pids []int, known bool) { return nil, false }
