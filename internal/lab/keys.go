package lab

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// How many keys the server of keys-in-production has, and how long each of them makes others wait at least: Redis looks
// at some 5 million keys a second on a fast machine.
const (
	keysThere  = 2_000_000
	keysShort  = 200_000
	waitPerKey = 50 * time.Millisecond / keysThere
)

// keysInProduction is a command that takes as long as there are keys.
func keysInProduction() *Experiment {
	return &Experiment{
		Number: 22, Name: "keys-in-production",
		Question: "May one list the locks with KEYS?",
		Claim: "Not on a server that others use: Redis does one thing at a time, and KEYS looks at every key there is before it does " +
			"the next. SCAN takes a bounded step, and lets others in between.",
		Setup: "A Redis with two million keys. One client lists those of a prefix, another sends PING all the time.",
		Anomalies: []Case{{"KEYS: the other client stands still for 50 ms and more", pingWhile(listByKeys, func(worst, _ time.Duration, keys int) bool {
			return worst > waitPerKey*time.Duration(keys)
		})}},
		Protections: []Case{{"SCAN: the other client waits less than half of what it waits for KEYS", pingWhile(listByScan, func(worst, byKeys time.Duration, _ int) bool {
			return 2*worst < byKeys
		})}},
	}
}

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
func pingWhile(list func(context.Context, *redis.Client) (int, error), seen func(worst, byKeys time.Duration, keys int) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		server, err := s.OwnRedis(ctx, sandbox.RedisConfig{Settings: map[string]string{"enable-debug-command": "yes"}})
		if err != nil {
			return false, err
		}
		client, there := s.Client(server.Addr()), keysThere
		if s.short {
			there = keysShort
		}
		if err := client.Do(ctx, "DEBUG", "POPULATE", strconv.Itoa(there), "item", "1").Err(); err != nil {
			return false, err
		}
		if err := client.Set(ctx, "lock:"+s.Name(), "A", 0).Err(); err != nil {
			return false, err
		}
		byKeys, err := s.longestPing(ctx, server.Addr(), "KEYS", listByKeys)
		if err != nil {
			return false, err
		}
		worst, err := s.longestPing(ctx, server.Addr(), "the list", list)
		s.Note("%d keys: longest PING beside KEYS %v, beside the list %v", there, byKeys.Round(time.Microsecond), worst.Round(time.Microsecond))
		return seen(worst, byKeys, there), err
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
