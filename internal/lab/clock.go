package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// newClock is a wall clock for one server. [errCannot] where there is no C compiler.
func (s *Stage) newClock(ctx context.Context) (*sandbox.Clock, error) {
	c, err := sandbox.NewClock(ctx)
	if errors.Is(err, sandbox.ErrNoCompiler) {
		return nil, fmt.Errorf("%w: %w", errCannot, err)
	}
	if err == nil {
		s.onEnd(func() { s.complain(c.Close()) })
	}
	return c, err
}

// setForward sets the wall clock of the third server forward by more than any lock here lasts.
func setForward(ctx context.Context, s *Stage) (blow, error) {
	const jump = 2 * time.Minute
	c, err := s.newClock(ctx)
	if err != nil {
		return blow{}, err
	}
	return blow{
		config: sandbox.RedisConfig{Env: c.Env()},
		strike: func(_ context.Context, s *Stage, _ *sandbox.Redis) error {
			s.Mark("Redis 3", Plain, "its clock is set forward by %v", jump)
			return c.Set(jump)
		},
	}, nil
}

// redlockClock is the clock of Kleppmann's argument, which somebody sets.
func redlockClock() *Experiment {
	return &Experiment{
		Number: 9, Name: "redlock-clock-jump",
		Question: "Does Redlock need clocks that nobody sets?",
		Claim: "Yes. A server whose clock is set forward lets the key run out early, and a second majority forms while the first " +
			"holder's lock is valid by every clock of its own. Nothing in Redlock stops that.",
		Setup:       "Five Redis servers; A does not reach 4 and 5. The wall clock of server 3 is set forward by two minutes, the TTL is one.",
		Anomalies:   []Case{{"two hold the lock inside its validity time, and both write", twoMajorities(redlock, blindly, setForward, played.overwritten)}},
		Protections: []Case{{"fencing token from Postgres: the row knows a newer holder", twoMajorities(redlockTk, withToken, setForward, refusedByStore)}},
		Roles:       holderRole,
	}
}
