package lab

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// keysThere is how many keys the server of keys-in-production has.
const keysThere = 2_000_000

func listByKeys(ctx context.Context, client *redis.Client) (int, error) {
	keys, err := client.Keys(ctx, "lock:*").Result()
	return len(keys), err
}

func listByScan(ctx context.Context, client *redis.Client) (found int, err error) {
	for cursor := uint64(0); ; {
		var keys []string
		if keys, cursor, err = client.Scan(ctx, cursor, "lock:*", 1000).Result(); err != nil {
			return found, err
		}
		found += len(keys)
		if cursor == 0 {
			return found, nil
		}
	}
}

// pingWhile measures the longest PING of a client while another lists keys, and while it lists them by KEYS.
func pingWhile(list func(context.Context, *redis.Client) (int, error), seen func(worst, keys time.Duration) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		server, err := s.OwnRedis(ctx, sandbox.RedisConfig{Settings: map[string]string{"enable-debug-command": "yes"}})
		if err != nil {
			return false, err
		}
		client := s.Client(server.Addr())
		if err := client.Do(ctx, "DEBUG", "POPULATE", strconv.Itoa(keysThere), "item", "1").Err(); err != nil {
			return false, err
		}
		if err := client.Set(ctx, "lock:"+s.Name(), "A", 0).Err(); err != nil {
			return false, err
		}
		keys, err := s.longestPing(ctx, server.Addr(), "KEYS", listByKeys)
		if err != nil {
			return false, err
		}
		worst, err := s.longestPing(ctx, server.Addr(), "the list", list)
		s.Note("longest PING beside KEYS %v, beside the list %v", keys.Round(time.Microsecond), worst.Round(time.Microsecond))
		return seen(worst, keys), err
	}
}

// longestPing is how long the slowest PING takes while keys are listed.
func (s *Stage) longestPing(ctx context.Context, addr, what string, list func(context.Context, *redis.Client) (int, error)) (time.Duration, error) {
	client, other := s.Client(addr), s.Client(addr)
	if err := other.Ping(ctx).Err(); err != nil { // connect first
		return 0, err
	}
	done := make(chan error, 1)
	s.Begin("A", Plain, "%s", what)
	go func() { _, err := list(ctx, client); done <- err }()
	var longest time.Duration
	for {
		began := time.Now()
		if err := other.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(began))
		select {
		case err := <-done:
			s.End("A", Plain)
			s.Mark("B", Plain, "longest PING %v", longest.Round(time.Microsecond))
			return longest, err
		default:
		}
	}
}
