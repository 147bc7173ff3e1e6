package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// software is a piece of server software: which programs we need and where they come from.
type software struct {
	name     string
	programs []string // all needed, all in one directory; the first may be in PATH
	places   []string // patterns of directories that distributions put them in, besides PATH
	packages []string // of Debian and Ubuntu
	unneeded []string // beginnings of the names of packages they depend on for what we do not use
	services []string // what those packages would run at boot
	fedora   string   // what to name to a person on another system
	brew     string
}

func postgresSoftware() software {
	return software{
		name:     "PostgreSQL",
		programs: []string{"postgres", "initdb", "pg_basebackup"},
		places: []string{
			"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/usr/bin", "/usr/local/pgsql/bin",
			"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin", "/opt/homebrew/bin",
		},
		packages: []string{"postgresql"},
		unneeded: []string{"libllvm", "libz3", "perl", "libperl", "locales"}, // jit, and scripts that run clusters
		services: []string{"postgresql"},
		fedora:   "postgresql-server", brew: "postgresql",
	}
}

func redisSoftware() software {
	return software{
		name:     "Redis",
		programs: []string{"redis-server"},
		places:   []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"},
		packages: []string{"redis-server"},
		services: []string{"redis-server"},
		fedora:   "redis", brew: "redis",
	}
}

func etcdSoftware() software {
	return software{
		name:     "etcd",
		programs: []string{"etcd"},
		places:   []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"},
		packages: []string{"etcd-server"},
		services: []string{"etcd"},
		fedora:   "etcd", brew: "etcd",
	}
}

// zookeeperSoftware is the jar of Debian and Ubuntu, which names the others it needs. No other system packages it so.
func zookeeperSoftware() software {
	return software{
		name:     "ZooKeeper",
		programs: []string{"zookeeper.jar"},
		places:   []string{"/usr/share/java"},
		packages: []string{"libzookeeper-java"},
		unneeded: []string{"openjdk", "default-jre"}, // found or fetched by itself
	}
}

func javaSoftware() software {
	return software{
		name:     "Java",
		programs: []string{"java"},
		places:   []string{"/usr/lib/jvm/*/bin", "/opt/homebrew/opt/openjdk/bin"},
		packages: []string{"default-jre-headless"},
		fedora:   "java-latest-openjdk-headless", brew: "openjdk",
	}
}

// ErrUnavailable is the reason why a server does not start whose programs are not on this machine, where we do not
// know how to fetch them either.
var ErrUnavailable = errors.New("no package manager here that we know")

// binaries is where the programs of a piece of software are, and what they need in their environment.
type binaries struct {
	dir string
	env []string
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// find looks for the programs. If they are not there it fetches them where it can: on Debian and Ubuntu it installs
// packages as root, and unpacks them into the user's cache otherwise. progress gets a line about what takes long.
func (s software) find(ctx context.Context, progress io.Writer) (binaries, error) {
	if found, ok := s.installed("/"); ok {
		return found, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return binaries{}, s.missing(ErrUnavailable)
	}
	found, err := s.fetch(ctx, progress)
	if err != nil {
		return binaries{}, s.missing(err)
	}
	return found, nil
}

// installed looks in PATH, then in the places of the distributions below root, the newest version first.
func (s software) installed(root string) (binaries, bool) {
	dirs := []string{}
	if path, err := exec.LookPath(s.programs[0]); err == nil && root == "/" {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, pattern := range s.places {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are valid
		slices.SortFunc(found, func(a, b string) int { return number(b) - number(a) })
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if s.complete(dir) {
			return binaries{dir: dir, env: libraries(root)}, true
		}
	}
	return binaries{}, false
}

// libraries tells the loader about the shared libraries of a tree of unpacked packages.
func libraries(root string) []string {
	if root == "/" {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-*")) // the patterns are valid
	more, _ := filepath.Glob(filepath.Join(root, "lib/*-linux-*"))
	return []string{"LD_LIBRARY_PATH=" + strings.Join(append(dirs, more...), ":")}
}

// complete reports whether all programs are in one directory.
func (s software) complete(dir string) bool {
	return !slices.ContainsFunc(s.programs, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err != nil || !info.Mode().IsRegular()
	})
}

// number is the version in a path: its last whole number, 0 if there is none.
func number(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[len(digits)-1]) // too large: not a version
	return n
}

// missing tells a person what to do.
func (s software) missing(cause error) error {
	line := "apt-get install " + strings.Join(s.packages, " ")
	if _, err := exec.LookPath("dnf"); err == nil && s.fedora != "" {
		line = "dnf install " + s.fedora
	}
	if runtime.GOOS == "darwin" && s.brew != "" {
		line = "brew install " + s.brew
	}
	return fmt.Errorf("%s is not here: install it (%s), or run everything in containers (docker compose up): %w", s.name, line, cause)
}
