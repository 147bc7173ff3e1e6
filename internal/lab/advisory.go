package lab

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// advisoryRepeatableRead: a lock that is taken too late in its transaction.
func advisoryRepeatableRead() *Experiment {
	return &Experiment{
		Number: 21, Name: "advisory-lock-repeatable-read",
		Question: "Does whoever holds a Postgres advisory lock see what the last holder wrote?",
		Claim: "Not in REPEATABLE READ when the lock is taken inside the transaction: its snapshot is from before the wait for the " +
			"lock, so it reads what was there before the last holder wrote. READ COMMITTED looks anew; so does a transaction that " +
			"begins under the lock.",
		Setup:     "B waits for the lock that A holds; A sells one of twenty units and commits; B gets the lock and reads.",
		Anomalies: []Case{{"B reads twenty under the lock, though nineteen are left", readUnderLock(pgx.RepeatableRead, lockInside, units)}},
		Protections: []Case{
			{"READ COMMITTED: B reads nineteen", readUnderLock(pgx.ReadCommitted, lockInside, units-1)},
			{"the lock in a statement of its own, then the transaction: B reads nineteen", readUnderLock(pgx.RepeatableRead, lockBefore, units-1)},
		},
	}
}

// reader reads how many are left in a transaction under the lock.
type reader func(ctx context.Context, conn *pgxpool.Conn, level pgx.TxIsoLevel, name string) (left int64, err error)

const readLeft = `SELECT on_hand FROM stock WHERE name = $1`

// lockInside takes the lock by the first statement of the transaction.
func lockInside(ctx context.Context, conn *pgxpool.Conn, level pgx.TxIsoLevel, name string) (left int64, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, name); err != nil {
			return err
		}
		return tx.QueryRow(ctx, readLeft, name).Scan(&left)
	})
	return left, err
}

// lockBefore takes the lock of the session, then begins.
func lockBefore(ctx context.Context, conn *pgxpool.Conn, level pgx.TxIsoLevel, name string) (left int64, err error) {
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtext($1))`, name); err != nil {
		return 0, err
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, readLeft, name).Scan(&left)
	})
	if err != nil {
		return 0, err
	}
	_, err = conn.Exec(ctx, `SELECT pg_advisory_unlock(hashtext($1))`, name)
	return left, err
}

func readUnderLock(level pgx.TxIsoLevel, read reader, want int64) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		pool, err := s.store(ctx)
		if err != nil {
			return false, err
		}
		if _, err := pool.Exec(ctx, `INSERT INTO stock (name, on_hand) VALUES ($1, $2)`, s.Name(), units); err != nil {
			return false, err
		}
		a, err := pool.Begin(ctx)
		if err != nil {
			return false, err
		}
		defer func() { _ = a.Rollback(context.WithoutCancel(ctx)) }() // it has been committed, if all is well
		if _, err := a.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, s.Name()); err != nil {
			return false, err
		}
		s.Begin("A", Holds, "holds the lock")
		b, err := pool.Acquire(ctx)
		if err != nil {
			return false, err
		}
		defer b.Release()
		var left int64
		done := make(chan error, 1)
		go func() { var err error; left, err = read(ctx, b, level, s.Name()); done <- err }()
		if err := s.waitsForLock(ctx, pool, b.Conn().PgConn().PID()); err != nil {
			return false, err
		}
		s.Mark("B", Plain, "waits for the lock, %s", level)
		if _, err := a.Exec(ctx, `UPDATE stock SET on_hand = on_hand - 1 WHERE name = $1`, s.Name()); err != nil {
			return false, err
		}
		if err := a.Commit(ctx); err != nil {
			return false, err
		}
		s.End("A", Holds)
		s.Mark("A", Plain, "sells one, commits")
		err = <-done
		s.Mark("B", Plain, "holds the lock, reads %d", left)
		return left == want, err
	}
}

// waitsForLock waits until a session waits for a lock.
func (s *Stage) waitsForLock(ctx context.Context, pool *pgxpool.Pool, pid uint32) error {
	return s.Until(ctx, "the session waits for a lock", func() (waits bool, err error) {
		err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock')`, int64(pid)).Scan(&waits)
		return waits, err
	})
}
