package sandbox

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A file that ends in .c would be taken for cgo's.
//
//go:embed clock.c.txt
var clockSource []byte

// ErrNoCompiler is the reason why there is no [Clock].
var ErrNoCompiler = errors.New("no C compiler (cc) to build a clock that can be set")

// Clock is the wall clock of the servers that are started with its Env. It can be set, as an administrator or NTP sets that of a
// machine; their monotonic clocks go on. Programs in Go, which ask the kernel themselves, do not see it.
type Clock struct {
	library string
	offset  *os.File
}

// NewClock compiles what a server must preload to have a clock of its own. [ErrNoCompiler] where that cannot be done.
func NewClock(ctx context.Context) (*Clock, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, ErrNoCompiler
	}
	dir, err := os.MkdirTemp("", "holdfast-clock-")
	if err != nil {
		return nil, err
	}
	c := &Clock{library: filepath.Join(dir, "clock.so")}
	if err := c.build(ctx, compiler); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

// build the library, and the file that says how far the clock is from the system's. A server that runs as another user reads both.
func (c *Clock) build(ctx context.Context, compiler string) error {
	dir := filepath.Dir(c.library)
	source := filepath.Join(dir, "clock.c")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(source, clockSource, 0o600)); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", c.library, source, "-ldl").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: the clock does not compile: %w: %s", ErrNoCompiler, err, out)
	}
	var err error
	if c.offset, err = os.OpenFile(filepath.Join(dir, "offset"), os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	return errors.Join(os.Chmod(c.library, 0o755), c.offset.Chmod(0o644), c.Set(0))
}

// Env is what a server needs in its environment to have this clock.
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.library, "SANDBOX_CLOCK_OFFSET=" + c.offset.Name()}
}

// Set moves the clock to so much after the system's, or before it.
func (c *Clock) Set(ahead time.Duration) error {
	var nanoseconds [8]byte
	binary.NativeEndian.PutUint64(nanoseconds[:], uint64(ahead))
	_, err := c.offset.WriteAt(nanoseconds[:], 0)
	return err
}

// Close removes the clock's files, once no server has it any more.
func (c *Clock) Close() error {
	return errors.Join(c.offset.Close(), os.RemoveAll(filepath.Dir(c.library)))
}
