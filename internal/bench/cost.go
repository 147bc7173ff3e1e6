package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick of the kernel's accounting: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// stat are the figures of /proc/<pid>/stat that matter here.
type stat struct {
	parent    int
	own, dead time.Duration // CPU time, user and system: its own, and that of its children that are gone
}

func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	// "pid (name) state parent …": the name may contain anything, a closing parenthesis too.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return stat{}, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // the kernel writes numbers
		return n
	}
	return stat{
		parent: int(number(1)),
		own:    time.Duration(number(11)+number(12)) * tick,
		dead:   time.Duration(number(13)+number(14)) * tick,
	}, true
}

// cpuTime is what processes and their children have used; 0 where there is no /proc.
func cpuTime(pids ...int) time.Duration {
	total := time.Duration(0)
	parents := map[int]bool{}
	for _, pid := range pids {
		s, _ := readStat(pid)
		total += s.own + s.dead
		parents[pid] = true
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s, ok := readStat(pid); ok && parents[s.parent] {
			total += s.own
		}
	}
	return total
}

// ownTime is what this process has used, without its children.
func ownTime() time.Duration {
	s, _ := readStat(os.Getpid())
	return s.own
}

// machineTime is what all processors together have been busy, for us or others; waiting for disks is not busy.
func machineTime() time.Duration {
	text, _ := os.ReadFile("/proc/stat") // where there is none, nothing is told
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	total := time.Duration(0)
	for i, field := range bytes.Fields(line) { // cpu user nice system idle iowait irq softirq steal guest guest_nice
		switch i {
		case 1, 2, 3, 6, 7, 8:
			n, _ := strconv.ParseInt(string(field), 10, 64) // the kernel writes numbers
			total += time.Duration(n) * tick
		}
	}
	return total
}
