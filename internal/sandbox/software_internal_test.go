package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// tree makes files, and the directories they are in, below a new root.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, file := range files {
		path := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNewestCompleteVersionIsFound(t *testing.T) {
	t.Parallel()
	s := software{programs: []string{"server", "tool"}, places: []string{"/opt/server/*/bin", "/usr/bin"}}
	for _, c := range []struct {
		name  string
		files []string
		want  string
	}{
		{"by number, not by letter", []string{"opt/server/9/bin/server", "opt/server/9/bin/tool", "opt/server/16/bin/server", "opt/server/16/bin/tool"}, "opt/server/16/bin"},
		{"complete ones only", []string{"opt/server/9/bin/server", "opt/server/9/bin/tool", "opt/server/16/bin/server"}, "opt/server/9/bin"},
		{"earlier places first", []string{"usr/bin/server", "usr/bin/tool", "opt/server/9/bin/server", "opt/server/9/bin/tool"}, "opt/server/9/bin"},
		{"not spread over places", []string{"usr/bin/server", "opt/server/9/bin/tool"}, ""},
		{"nothing", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files...)
			found, ok := s.installed(root)
			if ok != (c.want != "") {
				t.Fatalf("found: %v", ok)
			}
			if ok && found.dir != filepath.Join(root, c.want) {
				t.Errorf("found %s, want %s below %s", found.dir, c.want, root)
			}
		})
	}
}

func TestUnpackedProgramsFindTheirLibraries(t *testing.T) {
	t.Parallel()
	root := tree(t, "usr/bin/server", "usr/lib/x86_64-linux-gnu/libone.so", "lib/x86_64-linux-gnu/libtwo.so")
	found, ok := software{programs: []string{"server"}, places: []string{"/usr/bin"}}.installed(root)
	want := "LD_LIBRARY_PATH=" + filepath.Join(root, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(root, "lib/x86_64-linux-gnu")
	if !ok || len(found.env) != 1 || found.env[0] != want {
		t.Errorf("environment %q, want %q", found.env, want)
	}
}

func TestMissingSoftwareSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no server and no package manager here
	s := software{name: "Server", programs: []string{"server-that-is-nowhere"}, packages: []string{"server-package"}, brew: "server-brew"}
	_, err := s.find(context.Background(), nil)
	if !errors.Is(err, ErrUnavailable) {
		t.Fatalf("find: %v", err)
	}
	for _, part := range []string{"Server", "install", "docker compose up"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
}

func TestRelinkKeepsLinksInsideTheTree(t *testing.T) {
	t.Parallel()
	root := tree(t, "etc/server/config", "usr/lib/server/program")
	inside, outside := filepath.Join(root, "usr/lib/server/conf"), filepath.Join(root, "usr/lib/server/zone")
	if err := errors.Join(os.Symlink("/etc/server", inside), os.Symlink("/not/in/the/tree", outside)); err != nil {
		t.Fatal(err)
	}
	if err := relink(root); err != nil {
		t.Fatal(err)
	}
	moved := root + "-moved"
	if err := os.Rename(root, moved); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(moved, "usr/lib/server/conf/config")); err != nil || string(text) != "etc/server/config" {
		t.Errorf("through the link: %q, %v", text, err)
	}
	if target, err := os.Readlink(filepath.Join(moved, "usr/lib/server/zone")); target != "/not/in/the/tree" {
		t.Errorf("a link to the system became %s, %v", target, err)
	}
}

func TestCacheIsFilledOnceAndWhole(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // where other systems look
	broken := errors.New("broken")
	if _, err := cached("thing", func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o600), broken)
	}); !errors.Is(err, broken) {
		t.Fatalf("a fill that broke: %v", err)
	}
	var (
		users sync.WaitGroup
		mu    sync.Mutex
		fills int
	)
	for range 8 {
		users.Go(func() {
			dir, err := cached("thing", func(dir string) error {
				mu.Lock()
				defer mu.Unlock()
				fills++
				return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(names) != 1 || filepath.Base(names[0]) != "whole" {
				t.Errorf("in the cache: %v, %v", names, err)
			}
		})
	}
	users.Wait()
	if fills != 1 {
		t.Errorf("filled %d times", fills)
	}
}

func TestCacheWithoutAHome(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", filepath.Join(os.DevNull, "nonexistent"))
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(dir) != temporary {
		t.Errorf("cache in %s", dir)
	}
	if os.Geteuid() != 0 {
		return // only root can give a directory away
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if dir, err := cacheDir(); err == nil {
		t.Errorf("cache in %s, which belongs to somebody else", dir)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	sleeper := func() *process {
		p, err := program{path: "/bin/sleep", args: []string{"1000"}, dir: t.TempDir()}.start()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	spared, killed := sleeper(), sleeper()
	g, err := newGuard([]int{spared.pid})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.release(); err != nil {
		t.Fatal(err)
	}
	if g, err = newGuard([]int{killed.pid}); err != nil {
		t.Fatal(err)
	}
	// What the kernel does to the pipe when we die.
	if err := errors.Join(g.pipe.Close(), g.shell.Wait()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-killed.done:
	case <-time.After(stopLimit):
		t.Error("the guarded process lives")
	}
	if spared.ended() {
		t.Error("a released guard killed")
	}
	if g, err = newGuard([]int{spared.pid}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.pipe.Close(), g.shell.Wait()); err != nil {
		t.Fatal(err)
	}
	<-spared.done
}
