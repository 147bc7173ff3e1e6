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
	"strings"
	"syscall"
)

// fetch gets the packages of Debian or Ubuntu: into the system as root, else into the user's cache.
func (s software) fetch(ctx context.Context, progress io.Writer) (binaries, error) {
	if os.Geteuid() == 0 {
		return s.install(ctx, progress)
	}
	name := strings.Join(append([]string{"packages", systemName()}, s.packages...), "-")
	root, err := cached(name, func(dir string) error { return s.unpack(ctx, dir, progress) })
	if err != nil {
		return binaries{}, err
	}
	if found, ok := s.installed(root); ok {
		return found, nil
	}
	return binaries{}, fmt.Errorf("%s is not in the packages unpacked in %s", s.name, root)
}

// install installs the packages without starting or enabling their services. One process at a time does.
func (s software) install(ctx context.Context, progress io.Writer) (binaries, error) {
	cache, err := cacheDir()
	if err != nil {
		return binaries{}, err
	}
	lock, err := lockFile(filepath.Join(cache, "install.lock"), syscall.LOCK_EX)
	if err != nil {
		return binaries{}, err
	}
	defer lock.Close()
	if found, ok := s.installed("/"); ok {
		return found, nil // by another process while we waited
	}
	report(progress, "installing %s (apt-get install %s)", s.name, strings.Join(s.packages, " "))
	withdraw, err := forbidServices()
	if err != nil {
		return binaries{}, err
	}
	defer withdraw()
	install := func() error { return apt(ctx, "", append([]string{"install"}, s.packages...)...) }
	if err := install(); err != nil { // no package lists yet, or too old
		if err := errors.Join(apt(ctx, "", "update"), install()); err != nil {
			return binaries{}, err
		}
	}
	for _, service := range s.services {
		if out, err := exec.CommandContext(ctx, "update-rc.d", service, "disable").CombinedOutput(); err != nil {
			return binaries{}, fmt.Errorf("keep %s from starting at boot: %w\n%s", service, err, tail(string(out)))
		}
	}
	if found, ok := s.installed("/"); ok {
		return found, nil
	}
	return binaries{}, fmt.Errorf("%s is not in its packages", s.name)
}

// forbidServices keeps package scripts from starting services: policy-rc.d is what they ask. One that is there
// already is respected, unless it is ours from a run that was killed.
func forbidServices() (withdraw func(), err error) {
	const path = "/usr/sbin/policy-rc.d"
	const text = "#!/bin/sh\n# Holdfast is installing a package and wants no service of it. Safe to remove.\nexit 101\n"
	existing, err := os.ReadFile(path)
	if err == nil && string(existing) != text {
		return func() {}, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, os.WriteFile(path, []byte(text), 0o755)
}

// unpack downloads the packages, and those they need that are not installed, and unpacks them below root. It changes
// nothing else and needs no privileges.
func (s software) unpack(ctx context.Context, root string, progress io.Writer) error {
	report(progress, "fetching %s (apt-get download %s)", s.name, strings.Join(s.packages, " "))
	debs := filepath.Join(root, "debs")
	err := s.download(ctx, "", debs)
	if err != nil {
		// The system's package lists are missing or too old, and only root may renew them: use lists of our own.
		lists := filepath.Join(root, "lists")
		err = errors.Join(os.MkdirAll(filepath.Join(lists, "partial"), 0o755), apt(ctx, lists, "update"))
		if err == nil {
			err = s.download(ctx, lists, debs)
		}
		err = errors.Join(err, os.RemoveAll(lists))
	}
	if err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(debs, "*.deb")) // the pattern is valid
	for _, file := range files {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", file, root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(file), err, tail(string(out)))
		}
	}
	return errors.Join(os.RemoveAll(debs), relink(root))
}

// relink makes absolute links between unpacked files point below root: the packages expect to lie at /.
func relink(root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Type() != os.ModeSymlink {
			return err
		}
		target, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(target) {
			return err
		}
		inside, err := filepath.Rel(filepath.Dir(path), filepath.Join(root, target)) // the tree moves once more
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(root, target)); err == nil { // otherwise not from these packages
			return errors.Join(os.Remove(path), os.Symlink(inside, path))
		}
		return nil
	})
}

// download gets the missing packages as files into a directory.
func (s software) download(ctx context.Context, lists, dir string) error {
	cmd := aptCommand(ctx, lists, append([]string{"--simulate", "install"}, s.packages...)...)
	plan, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("ask apt-get what %s needs: %w", s.name, err)
	}
	names := []string{}
	for line := range strings.Lines(string(plan)) { // "Inst <name> (<version> …"
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Inst" && s.needs(fields[1]) {
			names = append(names, fields[1])
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	download := aptCommand(ctx, lists, append([]string{"download"}, names...)...)
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("download %s: %w\n%s", strings.Join(names, " "), err, tail(string(out)))
	}
	return nil
}

func (s software) needs(name string) bool {
	return !slices.ContainsFunc(s.unneeded, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// apt runs apt-get; the error carries the tail of what it printed.
func apt(ctx context.Context, lists string, args ...string) error {
	if out, err := aptCommand(ctx, lists, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(string(out)))
	}
	return nil
}

// aptCommand is apt-get without questions, with package lists of its own if a directory for them is given.
func aptCommand(ctx context.Context, lists string, args ...string) *exec.Cmd {
	options := []string{"-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}
	if os.Geteuid() != 0 {
		options = append(options, "-o", "Debug::NoLocking=1", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
	}
	if lists != "" {
		options = append(options, "-o", "Dir::State::Lists="+lists)
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	return cmd
}

// systemName tells systems apart that share a home directory: "debian-12-amd64".
func systemName() string {
	text, _ := os.ReadFile("/etc/os-release") // none: one name for all
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = strings.Trim(value, `"`)
		}
	}
	return strings.Join([]string{values["ID"], values["VERSION_ID"], runtime.GOARCH}, "-")
}

func report(progress io.Writer, format string, args ...any) {
	if progress != nil {
		_, _ = fmt.Fprintf(progress, format+"\n", args...) // progress is a courtesy
	}
}
