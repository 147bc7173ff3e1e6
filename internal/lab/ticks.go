package lab

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/redislock"
)

// cronByLock is the usual way to run a scheduled job on one of several instances.
func cronByLock() *Experiment {
	return &Experiment{
		Number: 16, Name: "cron-by-lock",
		Question: "Does a lock make a scheduled job run once?",
		Claim: "Only if the job takes longer than the clocks of the instances differ. Otherwise the second instance's tick comes when " +
			"the first one has released the lock, and the job runs again. What makes a tick happen once is a unique row for it.",
		Setup: "Two instances with the same schedule, whose clocks differ by more than the job takes. Each takes the lock at its own " +
			"tick, and runs the job if it gets it.",
		Anomalies:   []Case{{"the job runs twice for one tick", tickTwice(false)}},
		Protections: []Case{{"a unique row (job, tick): the second run is refused", tickTwice(true)}},
	}
}

// instance runs a job at its ticks.
type instance struct {
	name   string
	locker *lock.Locker[*lock.Lease]
	pool   *pgxpool.Pool
	once   bool // claims the tick before it runs
}

// tick runs the job if the lock can be had; the error is [errStale] if the tick has been run.
func (i instance) tick(ctx context.Context, s *Stage, tick int) error {
	return i.locker.TryDo(ctx, s.Name(), func(ctx context.Context, _ *lock.Lease) error {
		if i.once {
			if err := claimTick(ctx, i.pool, s.Name(), tick); err != nil {
				s.Mark(i.name, Refused, "tick %d: %v", tick, err)
				return err
			}
		}
		s.Begin(i.name, Holds, "runs tick %d", tick)
		defer s.End(i.name, Holds)
		_, err := i.pool.Exec(ctx, `INSERT INTO writes (name, writer, token) VALUES ($1, $2, $3)`, s.Name(), i.name, tick)
		return err
	})
}

func claimTick(ctx context.Context, pool *pgxpool.Pool, job string, tick int) error {
	tag, err := pool.Exec(ctx, `INSERT INTO ticks (job, tick) VALUES ($1, $2) ON CONFLICT DO NOTHING`, job, tick)
	if err == nil && tag.RowsAffected() == 0 {
		return errStale
	}
	return err
}

func tickTwice(once bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		addr, err := s.Redis(ctx)
		if err != nil {
			return false, err
		}
		pool, err := s.store(ctx)
		if err != nil {
			return false, err
		}
		locker, err := s.Locker(addr, redislock.Config{}, lock.TTL(patience))
		if err != nil {
			return false, err
		}
		a := instance{"A", locker, pool, once}
		b := instance{"B", locker, pool, once}
		if err := a.tick(ctx, s, 1); err != nil { // the clock of B is behind: its tick comes when A is done
			return false, err
		}
		second := b.tick(ctx, s, 1)
		if second != nil && !errors.Is(second, errStale) {
			return false, second
		}
		runs, err := register{pool: pool, name: s.Name()}.accepted(ctx)
		s.Note("tick 1 was run %d times", len(runs))
		if once {
			return errors.Is(second, errStale) && len(runs) == 1, err
		}
		return len(runs) == 2, err
	}
}
