package number_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/number"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is what a database keeps. Its updates are atomic; its answers may be lost.
type counter struct {
	mu    sync.Mutex
	next  int64
	draws int
	lose  func() error // after the update
}

func (c *counter) draw(_ context.Context, n int64) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := max(c.next, 1)
	c.next = first + n
	c.draws++
	if c.lose != nil {
		if err := c.lose(); err != nil {
			return 0, err
		}
	}
	return first, nil
}

var errLost = errors.New("the reply was lost")

// take draws numbers by several callers at once, and checks that each caller's grow.
func take(t *testing.T, source number.Source, callers, each int) []int64 {
	t.Helper()
	all := make([][]int64, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			last := int64(0)
			for len(all[i]) < each {
				n, err := source.Next(t.Context())
				if errors.Is(err, errLost) {
					continue
				}
				if err != nil || n <= last || n > number.Max {
					t.Errorf("%d after %d, %v", n, last, err)
					return
				}
				last = n
				all[i] = append(all[i], n)
			}
		})
	}
	group.Wait()
	return slices.Concat(all...)
}

// unique fails if a number was given out twice.
func unique(t *testing.T, numbers []int64) {
	t.Helper()
	slices.Sort(numbers)
	for i := 1; i < len(numbers); i++ {
		if numbers[i] == numbers[i-1] {
			t.Fatalf("%d was given out twice", numbers[i])
		}
	}
}

func TestSegmentsOfManyInstancesAreUniqueAndGrowInEach(t *testing.T) {
	t.Parallel()
	c := &counter{lose: func() error {
		if rand.N(4) == 0 {
			return errLost // applied, and nobody knows
		}
		return nil
	}}
	var all []int64
	var mu sync.Mutex
	var instances sync.WaitGroup
	for range 4 {
		instances.Go(func() {
			s := number.NewSegments(c.draw)
			defer s.Close()
			got := take(t, s, 8, 2000)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	instances.Wait()
	if len(all) != 4*8*2000 {
		t.Fatalf("%d numbers", len(all))
	}
	unique(t, all)
}

// A busy source asks seldom, a quiet one loses little.
func TestBlocksAreAsLargeAsTheyAreUsed(t *testing.T) {
	t.Parallel()
	c := &counter{}
	s := number.NewSegments(c.draw)
	defer s.Close()
	take(t, s, 1, 10)
	if c.next > 100 {
		t.Errorf("10 numbers took %d from the counter", c.next)
	}
	take(t, s, 1, 1_000_000)
	if c.draws > 40 {
		t.Errorf("a million numbers took %d draws", c.draws)
	}
}

func TestNobodyWaitsForABlockThatIsDrawnAhead(t *testing.T) {
	t.Parallel()
	c := &counter{}
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	s := number.NewSegments(func(ctx context.Context, n int64) (int64, error) {
		asked <- struct{}{}
		<-answer
		return c.draw(ctx, n)
	})
	defer s.Close()
	defer close(answer)
	go func() { answer <- struct{}{} }()
	if _, err := s.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-asked
	for range 32 { // the first block is of 64
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-asked
	waiting, cancel := context.WithCancel(t.Context())
	cancel() // whoever has to wait gets an error
	left := 0
	for ; ; left++ {
		if _, err := s.Next(waiting); err != nil {
			break
		}
	}
	if left < 10 {
		t.Errorf("only %d numbers of the first block were left when the second was asked for", left)
	}
}

// A counter that was set back, as a failover or a restored backup does, makes a source neither repeat nor go back.
func TestACounterThatWasSetBack(t *testing.T) {
	t.Parallel()
	c := &counter{}
	s := number.NewSegments(c.draw)
	defer s.Close()
	before := take(t, s, 1, 1000)
	c.mu.Lock()
	c.next = 1
	c.mu.Unlock()
	after := take(t, s, 1, 10_000)
	if after[0] <= before[len(before)-1] {
		t.Errorf("%d after %d", after[0], before[len(before)-1])
	}
	unique(t, slices.Concat(before, after))
	if c.next <= after[len(after)-1] {
		t.Errorf("the counter is at %d, and %d was given out", c.next, after[len(after)-1])
	}
}

func TestACounterThatIsAway(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	s := number.NewSegments(func(context.Context, int64) (int64, error) { return 0, away })
	if _, err := s.Next(t.Context()); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, err := s.Next(t.Context()); !errors.Is(err, number.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for _, first := range []int64{0, -5, number.Max} {
		s := number.NewSegments(func(context.Context, int64) (int64, error) { return first, nil })
		if n, err := s.Next(t.Context()); err == nil {
			t.Errorf("a counter at %d gave %d", first, n)
		}
		s.Close()
	}
}

func TestDiscardedNumbersAreNotGivenOut(t *testing.T) {
	t.Parallel()
	c := &counter{}
	s := number.NewSegments(c.draw)
	defer s.Close()
	n, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Discard()
	again, err := s.Next(t.Context())
	if err != nil || again <= n+1 {
		t.Errorf("%d after %d, %v", again, n, err)
	}
}

// workers leases spans as the database does.
type workers struct {
	mu     sync.Mutex
	until  [number.Workers]int64
	length int64
}

func (w *workers) lease(_ context.Context, now int64) (number.Span, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	least := 0
	for i, until := range w.until {
		if until < w.until[least] {
			least = i
		}
	}
	from := max(now, w.until[least])
	w.until[least] = from + w.length
	return number.Span{Worker: least, From: from, Until: w.until[least]}, nil
}

func TestSnowflakesOfManyInstancesAreUniqueAndGrowInEach(t *testing.T) {
	t.Parallel()
	w := &workers{length: 5}
	var all []int64
	var mu sync.Mutex
	var instances sync.WaitGroup
	for range 4 {
		instances.Go(func() {
			s := number.NewSnowflake(w.lease)
			defer s.Close()
			got := take(t, s, 8, 2000)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	instances.Wait()
	unique(t, all)
}

// The worker's last holder had a clock that was ahead by an hour, and it was set back: its numbers do not come again.
func TestSnowflakesAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	w := &workers{length: 1000}
	ahead := func(ctx context.Context, now int64) (number.Span, error) { return w.lease(ctx, now+hour) }
	first := number.NewSnowflake(ahead)
	before := take(t, first, 1, 1000)
	first.Close()
	for i := range w.until {
		w.until[i] = max(w.until[i], w.until[0]) // no other worker is free
	}
	second := number.NewSnowflake(w.lease)
	defer second.Close()
	after := take(t, second, 1, 1000)
	unique(t, slices.Concat(before, after))
	if after[0] <= before[len(before)-1] {
		t.Errorf("%d after %d", after[0], before[len(before)-1])
	}
}

func TestSnowflakesTellTimeAndWorker(t *testing.T) {
	t.Parallel()
	lease, err := number.Worker(9)
	if err != nil {
		t.Fatal(err)
	}
	s := number.NewSnowflake(lease)
	before := time.Since(number.Epoch).Milliseconds()
	n, err := s.Next(t.Context())
	after := time.Since(number.Epoch).Milliseconds()
	if err != nil || n>>12 < before || n>>12 > after || n>>7&31 != 9 {
		t.Errorf("%d has time %d and worker %d, want %d to %d and 9; %v", n, n>>12, n>>7&31, before, after, err)
	}
	s.Close()
	if _, err := s.Next(t.Context()); !errors.Is(err, number.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for _, worker := range []int{-1, number.Workers} {
		if _, err := number.Worker(worker); err == nil {
			t.Errorf("worker %d", worker)
		}
	}
}

func TestSnowflakesWithoutAWorker(t *testing.T) {
	t.Parallel()
	none := errors.New("no worker is free")
	s := number.NewSnowflake(func(context.Context, int64) (number.Span, error) { return number.Span{}, none })
	defer s.Close()
	if _, err := s.Next(t.Context()); !errors.Is(err, none) {
		t.Errorf("%v", err)
	}
	used := number.NewSnowflake(func(_ context.Context, now int64) (number.Span, error) {
		return number.Span{Worker: 0, From: now - 1, Until: now + 10}, nil
	})
	defer used.Close()
	if n, err := used.Next(t.Context()); err == nil {
		t.Errorf("a span that begins in the past gave %d", n)
	}
}

func BenchmarkNext(b *testing.B) {
	lease, err := number.Worker(1)
	if err != nil {
		b.Fatal(err)
	}
	for name, source := range map[string]number.Source{
		"segments": number.NewSegments((&counter{}).draw), "snowflake": number.NewSnowflake(lease),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := source.Next(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		source.Close()
	}
}
