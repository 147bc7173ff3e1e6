package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// scriptsDir has the k6 scripts.
const scriptsDir = "../../k6"

// scripts are the names of all of them.
func scripts(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(scriptsDir, "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no scripts in %s", scriptsDir)
	}
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = strings.TrimSuffix(filepath.Base(path), ".js")
	}
	return names
}

// k6lite is the runner of the scripts, built once for all tests. It is a module of its own.
var k6lite = sync.OnceValues(func() (string, error) {
	if command.dir == "" {
		return "", fmt.Errorf("the command must be built first")
	}
	path := filepath.Join(command.dir, "k6lite")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = "../k6lite"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build k6lite: %w: %s", err, out)
	}
	return path, nil
})

// overloadable makes a service one that the spike overloads: it lets few requests in, and gives them little time.
var overloadable = []string{"HOLDFAST_MAX_IN_FLIGHT=64", "HOLDFAST_REQUEST_DEADLINE=500ms"}

// twoProcesses of a service of their own.
func twoProcesses(t *testing.T, env ...string) []*instance {
	t.Helper()
	s := newShop(t, "")
	s.env = append(s.env, env...)
	return []*instance{s.open(t), s.open(t)}
}

// playScript runs a script in its short form against processes of a service and returns what it printed, and whether it passed.
func playScript(t *testing.T, name string, processes []*instance) (string, bool) {
	t.Helper()
	runner, err := k6lite()
	if err != nil {
		t.Fatal(err)
	}
	urls := make([]string, len(processes))
	for i, p := range processes {
		urls[i] = "http://" + p.addr
	}
	cmd := exec.CommandContext(t.Context(), runner, "run", "--quiet", "-e", "SIZE=short",
		"-e", "HOLDFAST_URL="+strings.Join(urls, ","), "-e", "HOLDFAST_TOKEN="+shopToken, filepath.Join(scriptsDir, name+".js"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err == nil
}

// Every load script passes in its short form against two processes of the service.
func TestLoadScripts(t *testing.T) {
	t.Parallel()
	processes, narrow := twoProcesses(t), twoProcesses(t, overloadable...)
	for _, name := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := processes
			if name == "spike" {
				on = narrow
			}
			if out, ok := playScript(t, name, on); !ok {
				t.Error(out)
			}
		})
	}
}
