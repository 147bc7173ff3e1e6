package number

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Draw takes the next n numbers from a counter that is shared and kept, by one atomic update, and returns the first.
type Draw func(ctx context.Context, n int64) (first int64, err error)

// A block should last about blockTime: then draws cost next to nothing, and a process that ends loses what it
// would have used in that time. Its size follows from how long the last one lasted.
const (
	minBlock  = 64
	maxBlock  = 1 << 17
	blockTime = 10 * time.Second
	drawLimit = 2 * time.Second
	drawPause = 100 * time.Millisecond // after a draw that failed while there are numbers left
)

// Segments gives out numbers of blocks that it draws from a counter. It draws the next block while there is half of
// one left, so that nobody waits, once the size of the blocks is right.
type Segments struct {
	draw    Draw
	drawers sync.WaitGroup

	mu      sync.Mutex
	current block         // guarded by mu
	next    block         // guarded by mu
	highest int64         // of all numbers drawn; guarded by mu
	size    int64         // of the next draw; guarded by mu
	drawnAt time.Time     // when the last draw began; guarded by mu
	failed  time.Time     // when the last draw failed; guarded by mu
	drawing chan struct{} // closed when the draw on its way is over; nil if none is; guarded by mu
	err     error         // of the last draw; guarded by mu
	closed  bool          // guarded by mu
}

// block is the numbers from first to last.
type block struct{ first, last int64 }

func (b block) left() int64 { return b.last - b.first + 1 }

var none = block{1, 0}

// NewSegments returns a source that draws its first block when it is first asked.
func NewSegments(draw Draw) *Segments {
	return &Segments{draw: draw, current: none, next: none, size: minBlock}
}

// Next implements [Source].
func (s *Segments) Next(ctx context.Context) (int64, error) {
	for waited := false; ; waited = true {
		n, drawing, err := s.take(waited)
		if drawing == nil {
			return n, err
		}
		select {
		case <-drawing:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take returns a number, or an error, or the draw to wait for. Who has waited for a draw is told that it failed.
func (s *Segments) take(waited bool) (n int64, drawing <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil, ErrClosed
	}
	if s.current.left() == 0 {
		s.current, s.next = s.next, none
	}
	empty := s.current.left() == 0
	if empty && waited && s.err != nil {
		return 0, nil, fmt.Errorf("draw numbers: %w", s.err)
	}
	if s.drawing == nil && (empty || s.next.left() == 0 && s.current.left() <= s.size/2 && time.Since(s.failed) > drawPause) {
		s.startLocked()
	}
	if empty {
		return 0, s.drawing, nil
	}
	n = s.current.first
	s.current.first++
	return n, nil, nil
}

// startLocked draws a block in the background.
func (s *Segments) startLocked() {
	now := time.Now()
	switch lasted := now.Sub(s.drawnAt); {
	case s.drawnAt.IsZero():
	case lasted < blockTime:
		s.size = min(2*s.size, maxBlock)
	case lasted > 4*blockTime:
		s.size = max(s.size/2, minBlock)
	}
	s.drawnAt = now
	done, size, above := make(chan struct{}), s.size, s.highest
	s.drawing = done
	s.drawers.Go(func() {
		drawn, err := s.drawAbove(above, size)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drawing, s.err = nil, err
		if err == nil {
			s.next, s.highest = drawn, drawn.last
		} else {
			s.failed = time.Now()
		}
		close(done)
	})
}

// drawAbove draws a block, all of it greater than what was drawn before. A counter that was set back is drawn past
// that.
func (s *Segments) drawAbove(above, size int64) (block, error) {
	ctx, cancel := context.WithTimeout(context.Background(), drawLimit)
	defer cancel()
	first, err := s.draw(ctx, size)
	if err == nil && first <= above {
		lag := above - first
		first, err = s.draw(ctx, lag+size)
		first += lag // the last part of what was drawn
	}
	switch {
	case err != nil:
		return none, err
	case first < 1 || first+size-1 > Max:
		return none, fmt.Errorf("the counter is at %d: it must be 1 to %d", first, int64(Max))
	}
	return block{first, first + size - 1}, nil
}

// Discard forgets the numbers that were drawn and not given out: somebody else may have been given the same.
func (s *Segments) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.next = none, none
}

// Close implements [Source].
func (s *Segments) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drawers.Wait()
}
