package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// software is a piece of server software: which programs we need and where they come from.
type software struct {
	name     string
	programs []string // all needed, all in one directory
	places   []string // patterns of directories that distributions put them in, besides PATH
	debian   []string // packages of Debian and Ubuntu
	fedora   string   // what to name to a person on another system
	brew     string
}

var (
	postgresPackage = software{
		name:     "PostgreSQL",
		programs: []string{"postgres", "initdb", "pg_basebackup"},
		places: []string{
			"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/usr/local/pgsql/bin",
			"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin", "/opt/homebrew/bin",
		},
		debian: []string{"postgresql"}, fedora: "postgresql-server", brew: "postgresql",
	}
	redisPackage = software{
		name:     "Redis",
		programs: []string{"redis-server"},
		places:   []string{"/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/snap/bin"},
		debian:   []string{"redis-server"}, fedora: "redis", brew: "redis",
	}
)

// binaries is where the programs of a piece of software are, and what they need in their environment.
type binaries struct {
	dir string
	env []string
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// find looks for the programs; if they are not there it installs them (root on Debian or Ubuntu).
func (s software) find(ctx context.Context) (binaries, error) {
	if found, ok := s.installed(); ok {
		return found, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return binaries{}, s.missing(nil)
	}
	if err := s.install(ctx); err != nil {
		return binaries{}, s.missing(err)
	}
	if found, ok := s.installed(); ok {
		return found, nil
	}
	return binaries{}, s.missing(fmt.Errorf("not found after installing %s", strings.Join(s.debian, " ")))
}

// installed looks in PATH, then in the places of the distributions, the newest version first.
func (s software) installed() (binaries, bool) {
	dirs := []string{}
	if path, err := exec.LookPath(s.programs[0]); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, pattern := range s.places {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		slices.SortFunc(found, func(a, b string) int { return number(b) - number(a) })
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if s.complete(dir) {
			return binaries{dir: dir}, true
		}
	}
	return binaries{}, false
}

// complete reports whether all programs are in one directory.
func (s software) complete(dir string) bool {
	return !slices.ContainsFunc(s.programs, func(name string) bool {
		_, err := exec.LookPath(filepath.Join(dir, name))
		return err != nil
	})
}

// number is the version in a path: its digits, in order.
func number(path string) int {
	digits := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, path)
	n, _ := strconv.Atoi(digits) // none: 0
	return n
}

// missing tells a person what to do.
func (s software) missing(cause error) error {
	line := "apt-get install " + strings.Join(s.debian, " ")
	if _, err := exec.LookPath("dnf"); err == nil {
		line = "dnf install " + s.fedora
	}
	if runtime.GOOS == "darwin" {
		line = "brew install " + s.brew
	}
	err := fmt.Errorf("%s is not here; install it (%s) or run everything with: docker compose up", s.name, line)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// install installs the packages system-wide without starting or enabling their services. One process at a time does.
func (s software) install(ctx context.Context) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	lock, err := lockFile(filepath.Join(cache, "install.lock"), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, ok := s.installed(); ok {
		return nil // by another process while we waited
	}
	withdraw, err := forbidServices()
	if err != nil {
		return err
	}
	defer withdraw()
	if err := apt(ctx, append([]string{"install"}, s.debian...)...); err == nil {
		return nil
	}
	if err := apt(ctx, "update"); err != nil { // no package lists yet, or old ones
		return err
	}
	return apt(ctx, append([]string{"install"}, s.debian...)...)
}

// apt runs apt-get without questions.
func apt(ctx context.Context, args ...string) error {
	args = append([]string{"-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, args...)
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(out))
	}
	return nil
}

// forbidServices keeps package scripts from starting services: policy-rc.d is what they ask. One that is there
// already is respected.
func forbidServices() (withdraw func(), err error) {
	const path = "/usr/sbin/policy-rc.d"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if os.IsExist(err) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, err = file.WriteString("#!/bin/sh\n# Holdfast is installing a package and wants no service of it. Safe to remove.\nexit 101\n")
	return func() { _ = os.Remove(path) }, err
}

// cacheDir is the user's directory for what can be made again, or one in the temporary directory.
func cacheDir() (string, error) {
	if base, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(base, "holdfast")
		if err := os.MkdirAll(dir, 0o755); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), "holdfast-cache-"+strconv.Itoa(os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to somebody else", dir)
	}
	return dir, nil
}
