package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// PostgresConfig says how to run a Postgres server. The zero value is a durable server on a free port, sized for
// development.
type PostgresConfig struct {
	Dir      string            // where its files are kept between runs; empty: a temporary directory, removed by Stop
	Port     int               // on 127.0.0.1; 0: a free one
	Settings map[string]string // parameters of postgresql.conf, over the defaults
	Env      []string          // NAME=value, beyond the few variables that every server gets
	Progress io.Writer         // gets a line before something takes long, as installing does; nil: nobody does
}

// Postgres is a private Postgres server on loopback. Its superuser postgres needs no password.
type Postgres struct {
	server
	binaries binaries
	account  *syscall.Credential // who it runs as; nil: as ourselves
}

// postgresDefaults are as durable as production, with room for a write-heavy run between checkpoints.
func postgresDefaults() map[string]string {
	return map[string]string{
		"fsync":                   "on",
		"synchronous_commit":      "on",
		"full_page_writes":        "on",
		"shared_buffers":          "256MB",
		"max_connections":         "200",
		"max_wal_size":            "4GB",
		"checkpoint_timeout":      "15min",
		"jit":                     "off",
		"track_io_timing":         "off",
		"log_checkpoints":         "off",
		"logging_collector":       "off",
		"unix_socket_directories": "",
	}
}

// StartPostgres runs a Postgres server, creating its data if there is none, and returns when it accepts
// connections. It ends with Stop, with Kill, or with this process.
func StartPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	return startPostgres(ctx, config, (*Postgres).create)
}

// startPostgres runs a server on data that create makes if there is none.
func startPostgres(ctx context.Context, config PostgresConfig, create func(*Postgres) error) (*Postgres, error) {
	found, err := postgresSoftware().find(ctx, config.Progress)
	if err != nil {
		return nil, err
	}
	account, err := postgresUser()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(config.Dir)
	if err != nil {
		return nil, err
	}
	p := &Postgres{
		server:   server{name: "postgres", dir: dir, port: config.Port, quit: syscall.SIGINT},
		binaries: found,
		account:  account,
	}
	p.ready = p.accepts
	p.program = func() (program, error) {
		settings := postgresDefaults()
		if p.compresses() {
			settings["wal_compression"] = "lz4"
		}
		maps.Copy(settings, config.Settings)
		settings["listen_addresses"] = "127.0.0.1"
		settings["port"] = strconv.Itoa(p.port)
		run := p.runs("postgres", "-D", p.data())
		run.env = slices.Concat(run.env, config.Env)
		return run, errors.Join(p.clearRemains(), p.configure(settings))
	}
	if err := create(p); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	if err := p.start(ctx, freePort); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return p, nil
}

// runs is one of Postgres' own programs, run as its user.
func (p *Postgres) runs(name string, args ...string) program {
	return program{path: p.binaries.path(name), args: args, env: p.binaries.env, dir: p.dir.path, user: p.account}
}

// compresses reports whether this build of Postgres can compress what it logs with lz4, which costs next to nothing.
func (p *Postgres) compresses() bool {
	return p.runs("postgres", "-D", p.data(), "-C", "wal_compression", "-c", "wal_compression=lz4").run() == nil
}

// URL is the connection string of one database of the server.
func (p *Postgres) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: p.Addr(), Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

func (p *Postgres) data() string { return p.dir.file("data") }

// configure writes the whole configuration. postgresql.auto.conf is left alone: ALTER SYSTEM stays in force.
func (p *Postgres) configure(settings map[string]string) error {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	const access = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
	return errors.Join(
		os.WriteFile(filepath.Join(p.data(), "postgresql.conf"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte(access), 0o644))
}

// accepts reports whether the child accepts connections: it says so in the last line of its own lock file.
func (p *Postgres) accepts(_ context.Context, child *process) bool {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return err == nil && len(lines) >= 8 && lines[0] == strconv.Itoa(child.pid) && strings.TrimSpace(lines[7]) == "ready"
}

// clearRemains removes what a killed server left. We hold the lock of the directory, so nobody else starts a
// server here; processes of the last one that have not noticed yet are given time and then ended, because
// Postgres refuses to start beside them.
func (p *Postgres) clearRemains() error {
	lingering := func() bool { pids, _ := processesIn(p.data()); return len(pids) > 0 }
	if !await(func() bool { return !lingering() }, lingerLimit) {
		pids, _ := processesIn(p.data())
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone is fine
		}
		if !await(func() bool { return !lingering() }, lingerLimit) {
			return fmt.Errorf("processes of an earlier server in %s do not end: %v", p.data(), pids)
		}
	}
	if _, known := processesIn(p.data()); !known {
		return nil // Postgres finds out by itself, unless the id of its old process is used again
	}
	if err := os.Remove(filepath.Join(p.data(), "postmaster.pid")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// postgresUser is who Postgres runs as: ourselves, unless we are root, whom Postgres refuses.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres does not run as root, and there is no user postgres or nobody to run it as")
}

// create makes the data directory if there is none, as a copy of a template that initdb makes once per version.
func (p *Postgres) create() error {
	if _, err := os.Stat(p.data()); err == nil {
		return nil
	}
	template, err := p.template()
	if err != nil {
		return err
	}
	return p.adopt(template)
}

// adopt makes a copy of a data directory ours. It appears whole or not at all.
func (p *Postgres) adopt(data string) error {
	fresh := p.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil { // of a creation that was killed
		return err
	}
	if err := os.CopyFS(fresh, os.DirFS(data)); err != nil {
		return err
	}
	if err := handOver(fresh, p.account); err != nil {
		return err
	}
	if !p.dir.temporary { // what is kept must survive the machine, too
		if err := p.runs("initdb", "--sync-only", "-D", fresh).run(); err != nil {
			return err
		}
	}
	return os.Rename(fresh, p.data())
}

// template is a fresh data directory in the user's cache.
func (p *Postgres) template() (string, error) {
	ask := exec.Command(p.binaries.path("postgres"), "--version")
	ask.Env = append(os.Environ(), p.binaries.env...)
	version, err := ask.Output()
	if err != nil {
		return "", fmt.Errorf("ask Postgres for its version: %w", err)
	}
	name := "initdb-" + strings.Join(strings.FieldsFunc(string(version), notInVersion), "-")
	return cached(name, p.initialise)
}

// initialise fills the template. initdb works elsewhere first, because the user it runs as may not get into the cache.
func (p *Postgres) initialise(template string) error {
	return p.asOwner(func(work string) error {
		data := filepath.Join(work, "data")
		initdb := p.runs("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
			"--no-sync", "--no-instructions")
		if err := initdb.run(); err != nil {
			return err
		}
		return os.CopyFS(template, os.DirFS(data))
	})
}

// asOwner calls do with a passing directory that belongs to the user Postgres runs as.
func (p *Postgres) asOwner(do func(dir string) error) error {
	work := p.dir.file("work")
	if err := os.RemoveAll(work); err != nil { // of a run that was killed
		return err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := handOver(work, p.account); err != nil {
		return err
	}
	return do(work)
}

func notInVersion(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.'
}

// handOver gives a tree to the user that the server runs as, private as Postgres wants it.
func handOver(root string, account *syscall.Credential) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if entry.IsDir() {
			mode = 0o700
		}
		if err := os.Chmod(path, mode); err != nil || account == nil {
			return err
		}
		return os.Chown(path, int(account.Uid), int(account.Gid))
	})
}
