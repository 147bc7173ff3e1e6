package number

import (
	"context"
	"fmt"
	"time"
)

// A snowflake is, from the highest bit: milliseconds since [Epoch], worker, sequence. 53 bits in all last until 2094.
// The layout is that of Twitter's (https://github.com/twitter-archive/snowflake/tree/snowflake-2010) with fewer bits.
const (
	workerBits   = 5
	sequenceBits = 7

	// Workers is how many there may be at once, numbered from 0.
	Workers = 1 << workerBits

	perMillisecond = 1 << sequenceBits
)

// Epoch is when the time of snowflakes begins.
var Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// maxAhead bounds how far the numbers may run ahead of the clock when more are wanted than a millisecond has.
const maxAhead = 1000

// Span is milliseconds since [Epoch], from From up to and without Until, that one worker may use. A span is given out
// once.
type Span struct {
	Worker      int
	From, Until int64
}

// Lease gives out a span that begins at now or, if that was given out before, later. Whose span is running out asks
// again, and may be made another worker.
type Lease func(ctx context.Context, now int64) (Span, error)

// Worker is the lease of a worker that an operator numbers: nobody else may have that number, and the clock must not
// be set back across a restart.
func Worker(number int) (Lease, error) {
	if number < 0 || number >= Workers {
		return nil, fmt.Errorf("worker %d: it must be 0 to %d", number, Workers-1)
	}
	return func(_ context.Context, now int64) (Span, error) {
		return Span{number, now, 1 << 41}, nil
	}, nil
}

// Snowflake gives out numbers of time, worker and sequence.
type Snowflake struct {
	lease   Lease
	started time.Time // with the monotonic clock, so that setting the clock does nothing

	turn   chan struct{} // full while somebody has the fields below
	offset time.Duration // from Epoch to started, by the clock then or by the span if that begins later
	span   Span
	last   int64 // the millisecond of the last number
	used   int64 // how many numbers of it are used
	closed bool
}

// NewSnowflake returns a source that leases its first span when it is first asked.
func NewSnowflake(lease Lease) *Snowflake {
	now := time.Now()
	return &Snowflake{lease: lease, started: now, offset: now.Sub(Epoch), turn: make(chan struct{}, 1)}
}

// Next implements [Source].
func (s *Snowflake) Next(ctx context.Context) (int64, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.closed {
		return 0, ErrClosed
	}
	for {
		now := s.now()
		if now > s.last {
			s.last, s.used = now, 0
		}
		if s.used == perMillisecond { // borrow from the time to come
			s.last, s.used = s.last+1, 0
		}
		if s.last >= s.span.Until {
			if err := s.renew(ctx, now); err != nil {
				return 0, err
			}
			continue
		}
		if s.last-now > maxAhead {
			if err := sleep(ctx, time.Millisecond); err != nil {
				return 0, err
			}
			continue
		}
		n := s.last<<(workerBits+sequenceBits) | int64(s.span.Worker)<<sequenceBits | s.used
		s.used++
		return n, nil
	}
}

// now is the time since Epoch in milliseconds.
func (s *Snowflake) now() int64 { return (s.offset + time.Since(s.started)).Milliseconds() }

// renew leases the next span. One that begins later than the clock says puts our clock forward to it: the last
// process with this worker had a clock that was ahead.
func (s *Snowflake) renew(ctx context.Context, now int64) error {
	span, err := s.lease(ctx, max(now, s.last))
	switch {
	case err != nil:
		return fmt.Errorf("lease a worker: %w", err)
	case span.Worker < 0 || span.Worker >= Workers || span.From < s.last || span.Until <= span.From || span.Until > 1<<41:
		return fmt.Errorf("lease a worker: got %+v at %d", span, s.last)
	}
	if ahead := span.From - now; ahead > 0 {
		s.offset += time.Duration(ahead) * time.Millisecond
	}
	s.span, s.last, s.used = span, span.From, 0
	return nil
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close implements [Source].
func (s *Snowflake) Close() {
	s.turn <- struct{}{}
	s.closed = true
	<-s.turn
}
