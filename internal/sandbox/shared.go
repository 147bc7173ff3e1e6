package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/db"
)

// helperLimit bounds what a test helper does outside the test's own deadline.
const helperLimit = 3 * time.Minute

const templateDatabase = "holdfast_template"

// shared holds the servers that the tests of one binary share. It is the package's only state, and deliberate: a
// test binary is one process with many tests, and a server each would cost more than all of them. It is used by
// tests only.
var shared struct {
	postgres sharedPostgres
	redis    sharedRedis
	names    atomic.Int64 // numbers databases and key prefixes
}

type sharedPostgres struct {
	once   sync.Once
	server *Postgres
	err    error
}

type sharedRedis struct {
	once   sync.Once
	server *Redis
	err    error
}

// testPostgres are settings for many small databases: durable all the same, because what a test proves about a
// crash it must prove about a server that syncs.
func testPostgres() map[string]string {
	return map[string]string{"shared_buffers": "64MB", "max_wal_size": "1GB"}
}

// Database returns the URL of a fresh, migrated database of its own on the Postgres server that all tests of the
// binary share. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	return cloneDatabase(t, templateDatabase)
}

// EmptyDatabase is Database without the migrations.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return cloneDatabase(t, "template0")
}

func cloneDatabase(t testing.TB, template string) string {
	t.Helper()
	server := sharedPostgresServer(t)
	name := fmt.Sprintf("test_%d", shared.names.Add(1))
	if err := server.execute("CREATE DATABASE " + name + " TEMPLATE " + template); err != nil {
		t.Fatalf("create database for %s: %v", t.Name(), err)
	}
	t.Cleanup(func() {
		if err := server.execute("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop database of %s: %v", t.Name(), err)
		}
	})
	return server.URL(name)
}

func sharedPostgresServer(t testing.TB) *Postgres {
	t.Helper()
	s := &shared.postgres
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
		defer cancel()
		if s.server, s.err = StartPostgres(ctx, PostgresConfig{Settings: testPostgres()}); s.err != nil {
			return
		}
		if s.err = s.server.execute("CREATE DATABASE " + templateDatabase); s.err == nil {
			s.err = db.Migrate(ctx, s.server.URL(templateDatabase))
		}
	})
	if s.err != nil {
		t.Fatalf("shared Postgres: %v", s.err)
	}
	return s.server
}

// execute runs one statement as superuser, outside any test database.
func (p *Postgres) execute(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// RedisAddr returns the address of the Redis server that all tests of the binary share. Nobody flushes it: a test
// keeps to keys under a prefix of its own, see [Prefix].
func RedisAddr(t testing.TB) string {
	t.Helper()
	s := &shared.redis
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
		defer cancel()
		s.server, s.err = StartRedis(ctx, RedisConfig{})
	})
	if s.err != nil {
		t.Fatalf("shared Redis: %v", s.err)
	}
	return s.server.Addr()
}

// Prefix returns a key prefix that no other test of the binary has.
func Prefix(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("t%d:", shared.names.Add(1))
}

// OwnPostgres starts a Postgres server for a test that stops, kills or pauses it. It ends with the test.
func OwnPostgres(t testing.TB, config PostgresConfig) *Postgres {
	t.Helper()
	settings := testPostgres()
	maps.Copy(settings, config.Settings)
	config.Settings = settings
	return own(t, config, StartPostgres)
}

// OwnRedis starts a Redis server for a test that stops, kills, pauses or flushes it. It ends with the test.
func OwnRedis(t testing.TB, config RedisConfig) *Redis {
	t.Helper()
	return own(t, config, StartRedis)
}

// OwnEtcd starts an etcd server that ends with the test. The test is skipped on systems where etcd is not installed
// and cannot be fetched.
func OwnEtcd(t testing.TB) *Etcd {
	t.Helper()
	return own(t, EtcdConfig{}, orSkip(t, StartEtcd))
}

// OwnZooKeeper starts a ZooKeeper server that ends with the test. The test is skipped on systems where ZooKeeper is
// not installed and cannot be fetched.
func OwnZooKeeper(t testing.TB) *ZooKeeper {
	t.Helper()
	return own(t, ZooKeeperConfig{}, orSkip(t, StartZooKeeper))
}

// orSkip makes a server optional: not every system has it.
func orSkip[Server, Config any](
	t testing.TB, start func(context.Context, Config) (Server, error),
) func(context.Context, Config) (Server, error) {
	return func(ctx context.Context, config Config) (Server, error) {
		server, err := start(ctx, config)
		if errors.Is(err, ErrUnavailable) {
			t.Skip(err)
		}
		return server, err
	}
}

// own starts a server that ends with the test.
func own[Server interface{ Stop(context.Context) error }, Config any](
	t testing.TB, config Config, start func(context.Context, Config) (Server, error),
) Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
	defer cancel()
	server, err := start(ctx, config)
	if err != nil {
		t.Fatalf("server for %s: %v", t.Name(), err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("stop server of %s: %v", t.Name(), err)
		}
	})
	return server
}

// Database is [Database] on a server of the test's own. It goes with the server.
func (p *Postgres) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", shared.names.Add(1))
	if err := p.execute("CREATE DATABASE " + name); err != nil {
		t.Fatalf("create database for %s: %v", t.Name(), err)
	}
	if err := db.Migrate(t.Context(), p.URL(name)); err != nil {
		t.Fatalf("migrate database for %s: %v", t.Name(), err)
	}
	return p.URL(name)
}

// Tests wraps the tests of a binary so that the servers they shared end, and their files go, with them:
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.Tests(m).Run()) }
//
// or, where goroutines start, goleak.VerifyTestMain(sandbox.Tests(m)). Without it the servers end with the process
// all the same; their files are removed by a later run.
func Tests(m *testing.M) *TestRun { return &TestRun{m: m} }

// TestRun is the run of a test binary, see [Tests].
type TestRun struct{ m *testing.M }

// Run runs the tests, stops the shared servers and returns the exit code.
func (r *TestRun) Run() int {
	code := r.m.Run()
	awaitDialers()
	ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
	defer cancel()
	var errs []error
	if s := shared.postgres.server; s != nil {
		errs = append(errs, s.Stop(ctx))
	}
	if s := shared.redis.server; s != nil {
		errs = append(errs, s.Stop(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
		return max(code, 1)
	}
	return code
}

// awaitDialers gives clients of Redis that were closed while their server was away the time to notice: go-redis tries such a server once a
// second, and looks only then whether it was closed. One that is still there afterwards was not closed.
func awaitDialers() {
	stacks := make([]byte, 1<<20)
	for range 40 {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("pool.(*ConnPool).tryDial")) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
