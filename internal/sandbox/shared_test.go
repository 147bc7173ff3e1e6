package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	first, second := connect(t, sandbox.Database(t)), connect(t, sandbox.Database(t))
	execute(t, first, "CREATE TABLE only_here (n int)")
	if scalar[bool](t, second, "SELECT to_regclass('only_here') IS NOT NULL") {
		t.Fatal("a table made in one database is visible in another")
	}
}

func TestDatabaseIsMigrated(t *testing.T) {
	t.Parallel()
	const tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
	if n := scalar[int](t, connect(t, sandbox.Database(t)), tables); n == 0 {
		t.Error("a test database has no tables")
	}
	own := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	if n := scalar[int](t, connect(t, own.Database(t)), tables); n == 0 {
		t.Error("a database on a server of its own has no tables")
	}
	if n := scalar[int](t, connect(t, sandbox.EmptyDatabase(t)), tables); n != 0 {
		t.Errorf("an empty database has %d tables", n)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("user", func(user *testing.T) {
		url = sandbox.Database(user)
		connect(t, url) // stays open longer than its test lasts
	})
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	other := connect(t, sandbox.EmptyDatabase(t))
	if scalar[bool](t, other, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')") {
		t.Fatalf("%s is still there", name)
	}
}

func TestTestsServerIsDurable(t *testing.T) {
	t.Parallel()
	conn := connect(t, sandbox.EmptyDatabase(t))
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if value := scalar[string](t, conn, "SHOW "+name); value != "on" {
			t.Errorf("%s is %s", name, value)
		}
	}
	const compression = "SELECT setting = CASE WHEN 'lz4' = ANY(enumvals) THEN 'lz4' ELSE 'off' END FROM pg_settings WHERE name = 'wal_compression'"
	if !scalar[bool](t, conn, compression) {
		t.Errorf("wal_compression is %s", scalar[string](t, conn, "SHOW wal_compression"))
	}
}

func TestRedisIsShared(t *testing.T) {
	t.Parallel()
	client := redisClient(t, sandbox.RedisAddr(t))
	if addr := sandbox.RedisAddr(t); addr != client.Options().Addr {
		t.Fatal("a second caller got another server")
	}
	prefixes := make([]string, 100) // so many that their numbers begin with one another
	for i := range prefixes {
		prefixes[i] = sandbox.Prefix(t)
	}
	slices.Sort(prefixes) // a prefix of another comes right before one that it begins
	for i, prefix := range prefixes[1:] {
		if strings.HasPrefix(prefix, prefixes[i]) {
			t.Fatalf("keys under %s and %s can be the same", prefixes[i], prefix)
		}
	}
	if policy := client.ConfigGet(t.Context(), "maxmemory-policy").Val()["maxmemory-policy"]; policy != "noeviction" {
		t.Fatalf("maxmemory-policy is %q", policy)
	}
}
