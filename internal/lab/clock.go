package lab

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// A file that ends in .c would be taken for cgo's.
//
//go:embed clock.c.txt
var clockSource []byte

// clock is the wall clock of one server, which can be set.
type clock struct {
	offset *os.File
	env    []string
}

// newClock compiles the shim that a server preloads. [errCannot] where there is no C compiler.
func (s *Stage) newClock(ctx context.Context) (*clock, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("%w: no C compiler (cc) to build a clock that can be set", errCannot)
	}
	dir, err := os.MkdirTemp("", "holdfast-lab-clock-")
	if err != nil {
		return nil, err
	}
	s.onEnd(func() { s.complain(os.RemoveAll(dir)) })
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: the clock does not compile: %w: %s", errCannot, err, out)
	}
	c := &clock{}
	if c.offset, err = os.Create(filepath.Join(dir, "offset")); err != nil {
		return nil, err
	}
	s.onEnd(func() { s.complain(c.offset.Close()) })
	c.env = []string{"LD_PRELOAD=" + library, "LAB_CLOCK_OFFSET=" + c.offset.Name()}
	return c, c.set(0)
}

// set moves the server's wall clock to so much after the real one.
func (c *clock) set(ahead time.Duration) error {
	var nanoseconds [8]byte
	binary.NativeEndian.PutUint64(nanoseconds[:], uint64(ahead))
	_, err := c.offset.WriteAt(nanoseconds[:], 0)
	return err
}

// setForward sets the wall clock of the third server forward by more than any lock here lasts.
func setForward(ctx context.Context, s *Stage) (blow, error) {
	const jump = 2 * time.Minute
	c, err := s.newClock(ctx)
	if err != nil {
		return blow{}, err
	}
	return blow{
		config: sandbox.RedisConfig{Env: c.env},
		strike: func(_ context.Context, s *Stage, _ *sandbox.Redis) error {
			s.Mark("Redis 3", Plain, "its clock is set forward by %v", jump)
			return c.set(jump)
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
