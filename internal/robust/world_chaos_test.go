//go:build chaos

package robust_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// withDefects is the command with defects and failpoints compiled in.
func withDefects(t testing.TB) string {
	return built(t, "defects", &builds.defects, "-tags", "defects")
}

// redisClient talks to the world's Redis past the wires.
func (w *world) redisClient() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: w.redis, MaxRetries: -1, Protocol: 2, ReadTimeout: patience})
	w.t.Cleanup(func() { _ = c.Close() }) // nothing is under way
	return c
}

// administer runs SQL past the wires.
func (w *world) administer(statement string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.url)
	if err == nil {
		_, err = conn.Exec(ctx, statement)
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}
