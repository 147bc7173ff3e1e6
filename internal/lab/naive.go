package lab

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// naiveLock is a Redis lock as it is often written. Each method is one of the ways; none is in the product.
type naiveLock struct {
	client *redis.Client
	key    string
	owner  string
}

// setNX takes the lock; without a TTL if that is 0.
func (l naiveLock) setNX(ctx context.Context, ttl time.Duration) (bool, error) {
	return l.client.SetNX(ctx, l.key, l.owner, ttl).Result()
}

// incr draws a token from a counter in the same Redis.
func (l naiveLock) incr(ctx context.Context) (int64, error) {
	return l.client.Incr(ctx, l.key+":token").Result()
}

// del releases without asking whose lock it is.
func (l naiveLock) del(ctx context.Context) error { return l.client.Del(ctx, l.key).Err() }

// mine asks whether the lock is still held by this owner; the answer may be old when it arrives.
func (l naiveLock) mine(ctx context.Context) (bool, error) {
	holder, err := l.holder(ctx)
	return holder == l.owner, err
}

// holder is who holds the lock, empty if nobody.
func (l naiveLock) holder(ctx context.Context) (string, error) {
	holder, err := l.client.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return holder, err
}

// mentions matches requests that contain a word, in any case.
func mentions(word string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(bytes.ToLower(request), bytes.ToLower([]byte(word))) }
}
