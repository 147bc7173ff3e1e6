//go:build defects

package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/defect"
)

// Which part of the table to make; all of it when empty.
var (
	onlyDefects = flag.String("defects", "", "comma-separated defects to look for")
	onlyScripts = flag.String("scripts", "", "comma-separated scripts to run")
)

// mustBeFound are the defects that load alone brings to light. The others need a store that dies, a second client, or a look into the
// gate.
var mustBeFound = []defect.Name{
	defect.NoVersionCheck, defect.IgnoreKey, defect.SettleWithoutVersion, defect.ReleaseOnUnknown, defect.SweepWithoutGuard,
}

// clean is the build without a defect, whose row must be green.
const clean defect.Name = ""

// A script that finds no defect is not worth having, and a defect that no script finds is one that nobody would see: this runs every
// script against a service with one defect at a time, and prints who found what. The command must be built with the tag as
// well: `make load-defects`.
func TestScriptsFindEveryDefect(t *testing.T) {
	names := scripts(t)
	if *onlyScripts != "" {
		names = strings.Split(*onlyScripts, ",")
	}
	defects := append([]defect.Name{clean}, mustBeFound...)
	if *onlyDefects != "" {
		defects = nil
		for name := range strings.SplitSeq(*onlyDefects, ",") {
			defects = append(defects, defect.Name(name))
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| defect | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, d := range defects {
		var found map[string]string
		t.Run(title(d), func(t *testing.T) { found = playAll(t, d, names) }) // its processes end with it
		cells, count := "", 0
		for _, name := range names {
			cell := "–"
			if found[name] != "" {
				cell = "found"
				count++
			}
			cells += " " + cell + " |"
		}
		fmt.Fprintf(&table, "| %s |%s\n", title(d), cells)
		switch {
		case d == clean:
			for name, said := range found {
				t.Errorf("%s fails without a defect:\n%s", name, said)
			}
		case count == 0:
			t.Errorf("no script finds the defect %s", d)
		}
	}
	t.Logf("\n%s", table.String())
}

func title(d defect.Name) string {
	if d == clean {
		return "none"
	}
	return string(d)
}

// playAll runs scripts against two processes that have a defect and returns what those said that failed.
func playAll(t *testing.T, d defect.Name, names []string) map[string]string {
	t.Helper()
	var (
		mu    sync.Mutex
		found = make(map[string]string)
		group sync.WaitGroup
		slots = make(chan struct{}, 2)
	)
	processes, narrow := defective(t, d), defective(t, d, overloadable...)
	for _, name := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			on := processes
			if name == "spike" {
				on = narrow
			}
			if said, ok := playScript(t, name, on); !ok {
				t.Logf("%s: %s: %s", title(d), name, gist(said))
				mu.Lock()
				defer mu.Unlock()
				found[name] = said
			}
		})
	}
	group.Wait()
	return found
}

// gist is what a script that failed says of it: the thresholds that do not hold, and the first thing it complained of.
func gist(said string) string {
	var lines []string
	complained := false
	for line := range strings.Lines(said) {
		if complaint := strings.HasPrefix(line, "ERRO"); strings.Contains(line, "✗") || complaint && !complained {
			complained = complained || complaint
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

// defective starts two processes that have a defect. What they log is not looked at: they say themselves that they are wrong.
func defective(t *testing.T, d defect.Name, env ...string) []*instance {
	t.Helper()
	s := newShop(t, "")
	s.env = append(append(s.env, "HOLDFAST_DEFECT="+string(d), "HOLDFAST_LATE_NEWS=true"), env...)
	var processes []*instance
	for range 2 {
		i := &instance{shop: s, addr: "127.0.0.1:" + strconv.Itoa(freePort(t))}
		i.start(t)
		t.Cleanup(func() { _ = i.stop() })
		processes = append(processes, i)
	}
	return processes
}
