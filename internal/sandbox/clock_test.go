package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestClockIsSet for a server that runs as ourselves and for one that runs as another user, and for nobody else.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	clock, err := sandbox.NewClock(t.Context())
	if errors.Is(err, sandbox.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clock.Close(); err != nil {
			t.Error(err)
		}
	})
	redis := redisClient(t, sandbox.OwnRedis(t, sandbox.RedisConfig{Env: clock.Env()}).Addr())
	conn, err := pgx.Connect(t.Context(), sandbox.OwnPostgres(t, sandbox.PostgresConfig{Env: clock.Env()}).URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server ends too
	for _, ahead := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		if err := clock.Set(ahead); err != nil {
			t.Fatal(err)
		}
		told, err := redis.Time(t.Context()).Result()
		if off := time.Until(told).Round(time.Hour); err != nil || off != ahead {
			t.Errorf("the clock of Redis is off by %v, not %v: %v", off, ahead, err)
		}
		err = conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&told)
		if off := time.Until(told).Round(time.Hour); err != nil || off != ahead {
			t.Errorf("the clock of Postgres is off by %v, not %v: %v", off, ahead, err)
		}
	}
}
