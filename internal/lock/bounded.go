package lock

import (
	"context"
	"sync"
	"time"
)

// bounded is a ctx with a deadline whose timer is made when somebody waits for Done. Most requests are answered long
// before, by clients that look at the deadline only, and a timer each would cost as much as the rest of the lock.
type bounded struct {
	context.Context // never ends: it gives the values
	deadline        time.Time

	once  sync.Once
	done  chan struct{}
	timer *time.Timer
}

// bound returns a ctx with ctx's values that ends after limit, and not before.
func bound(ctx context.Context, limit time.Duration) *bounded {
	return &bounded{Context: context.WithoutCancel(ctx), deadline: time.Now().Add(limit)}
}

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *bounded) Done() <-chan struct{} {
	b.once.Do(func() {
		b.done = make(chan struct{})
		b.timer = time.AfterFunc(time.Until(b.deadline), func() { close(b.done) })
	})
	return b.done
}

func (b *bounded) Err() error {
	if time.Now().Before(b.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

// release stops the timer, if there is one. The ctx must not be used any more.
func (b *bounded) release() {
	b.once.Do(func() {})
	if b.timer != nil {
		b.timer.Stop()
	}
}
