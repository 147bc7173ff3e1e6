package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// childAttributes ties the child's life to ours and puts it in a process group of its own, so that Ctrl-C in a
// terminal reaches us and not the server behind our back.
func childAttributes(account *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: account}
}

// passage opens a way into dir for a child that runs as another user and may not pass through the directories above,
// as when root works in its home: the child inherits dir opened, and knows it under another name. Without need of
// that it returns nil and dir itself.
func passage(dir string, account *syscall.Credential) (opened *os.File, name string, err error) {
	if account == nil || reachable(filepath.Dir(dir), account) {
		return nil, dir, nil
	}
	opened, err = os.Open(dir)
	return opened, "/proc/self/fd/3", err // the first file after the standard ones
}

// tie does nothing here: the parent-death signal has tied the child already.
func tie(*process) (release func(), err error) { return func() {}, nil }

// reachable reports whether an account may pass through dir and all directories above.
func reachable(dir string, account *syscall.Credential) bool {
	for {
		var info syscall.Stat_t
		if err := syscall.Stat(dir, &info); err != nil {
			return false
		}
		execute := uint32(0o001)
		if info.Gid == account.Gid {
			execute = 0o010
		}
		if info.Uid == account.Uid {
			execute = 0o100
		}
		if info.Mode&execute == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// descendants lists the children of a process, their children and so on. Postgres puts every backend into a
// session of its own, so a process group does not find them.
func descendants(pid int) []int {
	children := map[int][]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range paths {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if _, parent := status(child); parent > 0 {
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

// status is the state letter of a process (T: stopped, Z: dead and not reaped) and its parent; 0, 0 if there is none.
func status(pid int) (state byte, parent int) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0
	}
	// "pid (name) state parent …": the name may contain anything, a closing parenthesis too.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}

// stopped reports whether a process stands still, or is gone.
func stopped(pid int) bool {
	state, _ := status(pid)
	return state == 'T' || gone(pid)
}

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool {
	state, _ := status(pid)
	return state == 0 || state == 'Z' || state == 'X'
}

// processesIn lists the processes whose working directory is dir, as that of every Postgres process is its data;
// known is false where we cannot tell.
func processesIn(dir string) (pids []int, known bool) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is valid
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == dir {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids, true
}
