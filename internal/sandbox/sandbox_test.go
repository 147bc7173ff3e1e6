package sandbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

// connect opens a connection that ends with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func scalar[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	first, second := connect(t, sandbox.Database(t)), connect(t, sandbox.Database(t))
	if _, err := first.Exec(t.Context(), "CREATE TABLE only_here (n int)"); err != nil {
		t.Fatal(err)
	}
	if scalar[bool](t, second, "SELECT to_regclass('only_here') IS NOT NULL") {
		t.Fatal("a table made in one database is visible in another")
	}
}

func TestRedisIsShared(t *testing.T) {
	t.Parallel()
	client := redisClient(t, sandbox.RedisAddr(t))
	key := sandbox.Prefix(t) + "k"
	if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if sandbox.RedisAddr(t) != client.Options().Addr {
		t.Fatal("a second caller got another server")
	}
}
