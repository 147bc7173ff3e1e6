package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// scanCount is how many keys of the database one SCAN looks at. Redis serves others between two of them, which it
// does not do during KEYS.
const scanCount = 1000

// List implements [lock.Backend]. It looks at every key of the database, [scanCount] at a time.
func (b *Backend) List(ctx context.Context, limit int) ([]lock.Held, error) {
	if b.cluster == nil {
		return b.listNode(ctx, b.server.client, limit)
	}
	var mu sync.Mutex
	var all []lock.Held
	err := b.cluster.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		held, err := b.listNode(ctx, client, limit)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, held...)
		return err
	})
	return all[:min(limit, len(all))], err
}

func (b *Backend) listNode(ctx context.Context, client *redis.Client, limit int) ([]lock.Held, error) {
	var all []lock.Held
	seen := make(map[string]bool) // SCAN may return a key twice
	var cursor uint64
	for {
		keys, next, err := client.Scan(ctx, cursor, b.names.pattern(), scanCount).Result()
		if err != nil {
			return all, fmt.Errorf("redis: scan: %w", err)
		}
		fresh := keys[:0]
		for _, key := range keys {
			if !seen[key] {
				seen[key] = true
				fresh = append(fresh, key)
			}
		}
		held, err := b.describe(ctx, client, fresh)
		all = append(all, held...)
		if err != nil || len(all) >= limit || next == 0 {
			return all[:min(limit, len(all))], err
		}
		cursor = next
	}
}

// describe asks in one round trip for the owner, the time left and the waiters of each key.
func (b *Backend) describe(ctx context.Context, client *redis.Client, names []string) ([]lock.Held, error) {
	if len(names) == 0 {
		return nil, nil
	}
	pipe := client.Pipeline()
	values, left := make([]*redis.StringCmd, len(names)), make([]*redis.DurationCmd, len(names))
	for i, name := range names {
		values[i], left[i] = pipe.Get(ctx, name), pipe.PTTL(ctx, name)
	}
	waiting := pipe.PubSubNumSub(ctx, names...)
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return nil, fmt.Errorf("redis: describe: %w", err)
	}
	var held []lock.Held
	for i, name := range names {
		key, ours := b.names.key(name)
		if !ours || values[i].Err() != nil || left[i].Val() <= 0 { // foreign, or free by now
			continue
		}
		h := lock.NewHeld(key, values[i].Val())
		h.Remaining = left[i].Val().Round(time.Millisecond)
		h.Waiting = int(waiting.Val()[name])
		if b.cluster != nil {
			h.Waiting = -1 // they listen on any node
		}
		held = append(held, h)
	}
	return held, nil
}

// isReply reports whether the server answered, though not with what was asked for.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
