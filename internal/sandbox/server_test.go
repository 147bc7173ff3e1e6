package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestPostgresKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	addr, pid := server.Addr(), server.Pid()
	execute(t, connect(t, server.URL("postgres")), "CREATE TABLE kept AS SELECT 42 AS n")
	backends := pids(t, server)

	server.Kill()
	for _, pid := range append(backends, pid) {
		if alive(pid) {
			t.Errorf("process %d survived Kill", pid)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.Addr() != addr || server.Pid() == pid {
		t.Errorf("restarted at %s with pid %d, want %s and not %d", server.Addr(), server.Pid(), addr, pid)
	}
	if n := scalar[int](t, connect(t, server.URL("postgres")), "SELECT n FROM kept"); n != 42 {
		t.Errorf("n = %d", n)
	}
	if err := server.Restart(t.Context()); err != nil { // in order this time
		t.Fatal(err)
	}
	if n := scalar[int](t, connect(t, server.URL("postgres")), "SELECT n FROM kept"); n != 42 {
		t.Errorf("n = %d", n)
	}
}

func TestRedisKeepsWhatItIsToldTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		settings map[string]string
		kept     int64
	}{
		{"nothing by default", nil, 0},
		{"append-only", map[string]string{"appendonly": "yes", "appendfsync": "always"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := sandbox.OwnRedis(t, sandbox.RedisConfig{Settings: c.settings})
			client := redisClient(t, server.Addr())
			if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			if conn, err := net.Dial("tcp", server.Addr()); err == nil {
				_ = conn.Close()
				t.Fatal("somebody listens for a killed server")
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, err := redisClient(t, server.Addr()).Exists(t.Context(), "k").Result(); n != c.kept || err != nil {
				t.Errorf("%d keys after the restart, %v; want %d", n, err, c.kept)
			}
		})
	}
}

func TestPausedPostgresAnswersLater(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	conn := connect(t, server.URL("postgres"))
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
}

func TestPausedRedis(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	client := redisClient(t, server.Addr())
	for range 2 { // pausing twice is pausing once
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var timeout net.Error
	if err := client.Ping(short).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("ping of a paused server: %v", err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Pause(); err == nil {
		t.Error("a server that does not run was paused")
	}
}

func TestPausedServersEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *sandbox.Postgres) error{
		"stop":    func(ctx context.Context, p *sandbox.Postgres) error { return p.Stop(ctx) },
		"restart": func(ctx context.Context, p *sandbox.Postgres) error { return p.Restart(ctx) },
		"kill":    func(_ context.Context, p *sandbox.Postgres) error { p.Kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
			done, old := server.Done(), append(pids(t, server), server.Pid())
			if err := server.Pause(); err != nil {
				t.Fatal(err)
			}
			if err := end(t.Context(), server); err != nil {
				t.Fatal(err)
			}
			<-done
			for _, pid := range old {
				eventually(t, fmt.Sprintf("end of process %d", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

func TestStopRemovesATemporaryDirectoryOnly(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "kept")
	server, err := sandbox.StartRedis(t.Context(), sandbox.RedisConfig{Dir: kept})
	if err != nil {
		t.Fatal(err)
	}
	passing, err := sandbox.StartRedis(t.Context(), sandbox.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dir := redisClient(t, passing.Addr()).ConfigGet(t.Context(), "dir").Val()["dir"]
	if err := errors.Join(server.Stop(t.Context()), passing.Stop(t.Context()), passing.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(kept, "server.log")); err != nil {
		t.Errorf("a directory that was given: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a temporary directory: %v", err)
	}
	if err := server.Restart(t.Context()); err == nil {
		t.Error("a server was restarted in a directory that it had given up")
	}
}

// TestPostgresStartsOnWhatAKillLeft starts on data whose lock file names a process that lives, of the same user: ids
// are used again.
func TestPostgresStartsOnWhatAKillLeft(t *testing.T) {
	t.Parallel()
	other := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	config := sandbox.PostgresConfig{Dir: filepath.Join(t.TempDir(), "kept")}
	server, err := sandbox.StartPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, connect(t, server.URL("postgres")), "CREATE TABLE kept AS SELECT 42 AS n")
	lock := filepath.Join(config.Dir, "data", "postmaster.pid")
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(lock, []byte(strconv.Itoa(other.Pid())+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	again := sandbox.OwnPostgres(t, config)
	if n := scalar[int](t, connect(t, again.URL("postgres")), "SELECT n FROM kept"); n != 42 {
		t.Errorf("n = %d", n)
	}
}

func TestDirectoryIsForOneServer(t *testing.T) {
	t.Parallel()
	config := sandbox.RedisConfig{Dir: t.TempDir()}
	sandbox.OwnRedis(t, config)
	if second, err := sandbox.StartRedis(t.Context(), config); err == nil {
		t.Errorf("two servers in one directory, the second on %s", second.Addr())
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	if _, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{Settings: map[string]string{"shared_buffers": "many"}}); err == nil ||
		!strings.Contains(err.Error(), `invalid value for parameter "shared_buffers": "many"`) {
		t.Errorf("postgres: %v", err)
	}
	if _, err := sandbox.StartRedis(t.Context(), sandbox.RedisConfig{Settings: map[string]string{"maxmemory-policy": "whatever"}}); err == nil ||
		!strings.Contains(err.Error(), "maxmemory-policy whatever") {
		t.Errorf("redis: %v", err)
	}
}

// TestTakenPort has another server of the same kind answer on the port: it must not be taken for ours.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	first := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	if _, err := sandbox.StartRedis(t.Context(), sandbox.RedisConfig{Port: first.Port()}); !errors.Is(err, sandbox.ErrPortTaken) {
		t.Errorf("redis: %v", err)
	}
	if _, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{Port: first.Port()}); !errors.Is(err, sandbox.ErrPortTaken) {
		t.Errorf("postgres: %v", err)
	}
}

func TestPostgresBelowAClosedDirectory(t *testing.T) {
	t.Parallel()
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil { // to others; only root runs Postgres as another
		t.Fatal(err)
	}
	server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{Dir: filepath.Join(closed, "postgres")})
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := connect(t, server.URL("postgres"))
	execute(t, old, "ALTER SYSTEM SET work_mem = '5MB'")
	execute(t, old, "SELECT pg_reload_conf()")
	eventually(t, "reading the configuration anew", func() bool { return scalar[string](t, old, "SHOW work_mem") == "5MB" })
	if memory := scalar[string](t, connect(t, server.URL("postgres")), "SHOW work_mem"); memory != "5MB" {
		t.Errorf("a new session has work_mem %s", memory)
	}
	standby, err := sandbox.StartPostgresStandby(t.Context(), server, sandbox.StandbyConfig{
		PostgresConfig: sandbox.PostgresConfig{Dir: filepath.Join(closed, "standby")}, Name: "second",
	})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, standby)
}

func TestAlterSystemSurvivesARestart(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{Settings: map[string]string{"application_name": "it's"}})
	conn := connect(t, server.URL("postgres"))
	if name := scalar[string](t, conn, "SHOW application_name"); name != "it's" {
		t.Errorf("application_name is %q", name)
	}
	execute(t, conn, "ALTER SYSTEM SET commit_delay = 1000")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if delay := scalar[string](t, connect(t, server.URL("postgres")), "SHOW commit_delay"); delay != "1000" {
		t.Errorf("commit_delay is %s", delay)
	}
}

// TestNothingOutlivesUs kills a process that runs servers, in the middle of work, and waits for all of them to go.
func TestNothingOutlivesUs(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"owner", "owner of paused servers"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			owner := play(role)
			out, err := owner.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			var children []int
			err = json.NewDecoder(out).Decode(&children)
			if err := errors.Join(err, owner.Process.Kill()); err != nil {
				t.Fatal(err)
			}
			_ = owner.Wait() // it was killed
			if len(children) < 5 {
				t.Fatalf("the owner tells of %d processes only", len(children))
			}
			for _, pid := range children {
				eventually(t, fmt.Sprintf("end of process %d", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

// roles are what [play] can play.
func roles() map[string]func() {
	return map[string]func(){
		"owner": func() { own(func(*sandbox.Postgres, *sandbox.Redis) error { return nil }) },
		"owner of paused servers": func() {
			own(func(p *sandbox.Postgres, r *sandbox.Redis) error { return errors.Join(p.Pause(), r.Pause()) })
		},
	}
}

// own starts servers, prints the ids of all their processes and waits to be killed.
func own(before func(*sandbox.Postgres, *sandbox.Redis) error) {
	ctx := context.Background()
	postgres, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{})
	must(err)
	redis, err := sandbox.StartRedis(ctx, sandbox.RedisConfig{})
	must(err)
	conn, err := pgx.Connect(ctx, postgres.URL("postgres"))
	must(err)
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity")
	must(err)
	children, err := pgx.CollectRows(rows, pgx.RowTo[int])
	must(err)
	go func() { _, _ = conn.Exec(ctx, "SELECT pg_sleep(1000)") }()
	must(before(postgres, redis))
	must(json.NewEncoder(os.Stdout).Encode(append(children, postgres.Pid(), redis.Pid())))
	select {}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// pids lists the processes of a server besides the main one.
func pids(t *testing.T, server *sandbox.Postgres) []int {
	t.Helper()
	rows, err := connect(t, server.URL("postgres")).Query(t.Context(), "SELECT pid FROM pg_stat_activity")
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Compact(list)
}

// TestFilesOfKilledRunsAreRemoved leaves the directory of a dead run and one of a live run behind.
func TestFilesOfKilledRunsAreRemoved(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	abandoned, held := temporary(t), temporary(t)
	lock, err := os.Create(filepath.Join(held, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{abandoned, held} {
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	sandbox.OwnRedis(t, sandbox.RedisConfig{})
	if _, err := os.Stat(abandoned); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a dead run: %v", err)
	}
	if _, err := os.Stat(held); err != nil {
		t.Errorf("the directory of a live run: %v", err)
	}
}

func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-sandbox-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
