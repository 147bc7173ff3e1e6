package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/pglock"
	ours "github.com/holdfast-stock/holdfast/internal/lock/redislock"
	"github.com/holdfast-stock/holdfast/internal/number"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// BenchmarkNumbers compares ways to give each of many callers a number of its own: two without a lock, and a counter
// that is read and written under one. All but the snowflakes keep it in the same Postgres.
func BenchmarkNumbers(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B, p *pgxpool.Pool) cycle
	}{
		{"segments", openSegments},
		{"snowflakes", openSnowflakes},
		{"row-lock", openRowLock},
		{"advisory-lock", openAdvisoryCounter},
		{"redis-lock", openRedisCounter},
		{"redis-lock-with-token", openRedisTokenCounter},
	} {
		b.Run("16-callers/"+c.name, func(b *testing.B) { run(b, c.open(b, pool(b)), 16) })
	}
}

const (
	readCounter  = "SELECT next FROM number_series WHERE name = 'deduction'"
	writeCounter = "UPDATE number_series SET next = $1 WHERE name = 'deduction'"
)

func ofSource(b *testing.B, source number.Source) cycle {
	b.Cleanup(source.Close)
	return func(ctx context.Context, _ string) error {
		_, err := source.Next(ctx)
		return err
	}
}

func openSegments(b *testing.B, p *pgxpool.Pool) cycle {
	const draw = "UPDATE number_series SET next = next + $1 WHERE name = 'deduction' RETURNING next - $1"
	return ofSource(b, number.NewSegments(func(ctx context.Context, n int64) (first int64, err error) {
		err = p.QueryRow(ctx, draw, n).Scan(&first)
		return first, err
	}))
}

func openSnowflakes(b *testing.B, _ *pgxpool.Pool) cycle {
	lease, err := number.Worker(1)
	if err != nil {
		b.Fatal(err)
	}
	return ofSource(b, number.NewSnowflake(lease))
}

// inTransaction counts on under a lock that ends with the transaction.
func inTransaction(p *pgxpool.Pool, lockCounter, read string) cycle {
	return func(ctx context.Context, _ string) error {
		return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
			if lockCounter != "" {
				if _, err := tx.Exec(ctx, lockCounter); err != nil {
					return err
				}
			}
			return count(ctx, tx, read)
		})
	}
}

// querier is a transaction or a pool.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func count(ctx context.Context, q querier, read string) error {
	var next int64
	if err := q.QueryRow(ctx, read).Scan(&next); err != nil {
		return err
	}
	_, err := q.Exec(ctx, writeCounter, next+1)
	return err
}

func openRowLock(_ *testing.B, p *pgxpool.Pool) cycle {
	return inTransaction(p, "", readCounter+" FOR UPDATE")
}

func openAdvisoryCounter(_ *testing.B, p *pgxpool.Pool) cycle {
	return inTransaction(p, "SELECT pg_advisory_xact_lock(7)", readCounter)
}

func openRedisCounter(b *testing.B, p *pgxpool.Pool) cycle {
	locker := lock.New(redisBackend(b), lock.TTL(ttl))
	return underLock(b, p, locker)
}

func openRedisTokenCounter(b *testing.B, p *pgxpool.Pool) cycle {
	locker := lock.NewFenced(lock.WithTokens(redisBackend(b), pglock.NewTokens(p)), lock.TTL(ttl))
	return underLock(b, p, locker)
}

func redisBackend(b *testing.B) *ours.Backend {
	backend, err := ours.New(client(b, sandbox.RedisAddr(b)), ours.Config{Prefix: sandbox.Prefix(b)})
	if err != nil {
		b.Fatal(err)
	}
	return backend
}

func underLock[L lock.Granted](b *testing.B, p *pgxpool.Pool, l *lock.Locker[L]) cycle {
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	return func(ctx context.Context, _ string) error {
		return l.Do(ctx, "counter", func(ctx context.Context, _ L) error { return count(ctx, p, readCounter) })
	}
}
