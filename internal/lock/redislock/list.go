package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// scanCount is how many keys of the database one SCAN looks at. Redis serves others between two of them, which it
// does not do during KEYS.
const scanCount = 1000

// List implements [lock.Backend]. It looks at every key of the database, [scanCount] at a time.
func (b *Backend) List(ctx context.Context, limit int) ([]lock.Held, error) {
	if b.cluster == nil {
		return b.names.list(ctx, b.server.client, limit, b.describe)
	}
	var mu sync.Mutex
	var all []lock.Held
	err := b.cluster.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		held, err := b.names.list(ctx, client, limit, b.describe)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, held...)
		return err
	})
	all = all[:min(limit, len(all))]
	for i := range all {
		all[i].Waiting = -1 // they listen on any node
	}
	return all, err
}

// describer queues commands that ask for one lock, and returns what reads their answers: false if it is not held.
type describer func(ctx context.Context, pipe redis.Pipeliner, name, key string) func() (lock.Held, bool)

func (n names) list(ctx context.Context, client *redis.Client, limit int, describe describer) ([]lock.Held, error) {
	var all []lock.Held
	seen := make(map[string]bool) // SCAN may return a key twice
	var cursor uint64
	for {
		found, next, err := client.Scan(ctx, cursor, n.pattern(), scanCount).Result()
		if err != nil {
			return all, fmt.Errorf("redis: scan: %w", err)
		}
		var read []func() (lock.Held, bool)
		pipe := client.Pipeline()
		for _, name := range found {
			if key, ours := n.key(name); ours && !seen[name] {
				seen[name] = true
				read = append(read, describe(ctx, pipe, name, key))
			}
		}
		if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
			return all, fmt.Errorf("redis: describe: %w", err)
		}
		for _, answer := range read {
			if h, held := answer(); held {
				all = append(all, h)
			}
		}
		if len(all) >= limit || next == 0 {
			return all[:min(limit, len(all))], nil
		}
		cursor = next
	}
}

// describe asks for the owner, the time left and the waiters of a lock.
func describe(ctx context.Context, pipe redis.Pipeliner, name, key string) func() (lock.Held, bool) {
	value, left, waiting := pipe.Get(ctx, name), pipe.PTTL(ctx, name), pipe.PubSubNumSub(ctx, name)
	return func() (lock.Held, bool) {
		if value.Err() != nil || left.Val() <= 0 { // not one of these locks, or free by now
			return lock.Held{}, false
		}
		h := lock.NewHeld(key, value.Val())
		h.Remaining, h.Waiting = left.Val(), int(waiting.Val()[name])
		return h, true
	}
}

// isReply reports whether the server answered, though not with what was asked for.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
