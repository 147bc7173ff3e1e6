package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// watcher tells waiters that a key was released. It holds one connection, made when somebody first waits. What it
// misses the waiters find by looking now and then.
type watcher struct {
	subscribe func() *redis.PubSub

	mu      sync.Mutex
	pubsub  *redis.PubSub            // nil until somebody waits; guarded by mu
	freed   map[string]chan struct{} // of the channels that are watched; guarded by mu
	changes chan change              // closed by close; sent to under mu
	closed  bool                     // guarded by mu
	running sync.WaitGroup
}

// change is a channel to be subscribed or not any more. Changes are made in their order, by one goroutine, because
// the connection may be slow and nobody should wait for it.
type change struct {
	key       string
	subscribe bool
}

const (
	maxChanges  = 1024 // that are waiting to be made; more are forgotten, and their waiters look by themselves
	changeLimit = time.Second
)

// watch listens for releases of a key. There is one watch a key at a time.
func (w *watcher) watch(key string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, func() {}
	}
	if w.pubsub == nil {
		w.startLocked()
	}
	freed := make(chan struct{}, 1)
	w.freed[key] = freed
	w.changeLocked(change{key, true})
	return freed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.freed[key] == freed && !w.closed {
			delete(w.freed, key)
			w.changeLocked(change{key, false})
		}
	}
}

func (w *watcher) startLocked() {
	w.pubsub = w.subscribe()
	w.freed = make(map[string]chan struct{})
	w.changes = make(chan change, maxChanges)
	messages := w.pubsub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(time.Second))
	w.running.Go(func() { w.listen(messages) })
	w.running.Go(w.apply)
}

func (w *watcher) changeLocked(c change) {
	select {
	case w.changes <- c:
	default:
	}
}

// apply makes the changes. One that fails is made by the client when it has a connection again.
func (w *watcher) apply() {
	for c := range w.changes {
		ctx, cancel := context.WithTimeout(context.Background(), changeLimit)
		if c.subscribe {
			_ = w.pubsub.Subscribe(ctx, c.key)
		} else {
			_ = w.pubsub.Unsubscribe(ctx, c.key)
		}
		cancel()
	}
}

// listen wakes waiters until the subscription is closed. Being subscribed, perhaps again, wakes too: what was
// published before was missed.
func (w *watcher) listen(messages <-chan any) {
	for message := range messages {
		switch m := message.(type) {
		case *redis.Message:
			w.wake(m.Channel)
		case *redis.Subscription:
			w.wake(m.Channel)
		}
	}
}

func (w *watcher) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.freed[key] <- struct{}{}:
	default: // nobody waits, or is about to look anyway
	}
}

func (w *watcher) close() error {
	w.mu.Lock()
	started := w.pubsub != nil && !w.closed
	w.closed = true
	if started {
		close(w.changes)
	}
	w.mu.Unlock()
	if !started {
		return nil
	}
	err := w.pubsub.Close()
	w.running.Wait()
	return err
}
