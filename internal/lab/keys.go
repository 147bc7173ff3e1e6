package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
		Setup:       "A Redis with two million keys. One client lists those of a prefix, another sends PING all the time.",
		Anomalies:   []Case{{"KEYS: the other client stands still for 50 ms and more", pingBesideKeys}},
		Protections: []Case{{"SCAN: each step takes less than a twentieth of what KEYS takes", scanInSteps}},
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

// crowded starts a Redis with many keys, of which one is a lock.
func (s *Stage) crowded(ctx context.Context) (client *redis.Client, keys int, err error) {
	server, err := s.OwnRedis(ctx, sandbox.RedisConfig{Settings: map[string]string{"enable-debug-command": "yes"}})
	if err != nil {
		return nil, 0, err
	}
	client, keys = s.Client(server.Addr()), keysThere
	if s.short {
		keys = keysShort
	}
	if err := client.Do(ctx, "DEBUG", "POPULATE", strconv.Itoa(keys), "item", "1").Err(); err != nil {
		return nil, 0, err
	}
	return client, keys, client.Set(ctx, "lock:"+s.Name(), "A", 0).Err()
}

// pingBesideKeys measures the longest PING of a client while another lists by KEYS.
func pingBesideKeys(ctx context.Context, s *Stage) (bool, error) {
	client, keys, err := s.crowded(ctx)
	if err != nil {
		return false, err
	}
	other := s.Client(client.Options().Addr)
	if err := other.Ping(ctx).Err(); err != nil { // connect first
		return false, err
	}
	done := make(chan error, 1)
	s.Begin("A", Plain, "KEYS")
	go func() { _, err := listByKeys(ctx, client); done <- err }()
	var longest time.Duration
	for {
		began := time.Now()
		if err := other.Ping(ctx).Err(); err != nil {
			return false, err
		}
		longest = max(longest, time.Since(began))
		select {
		case err := <-done:
			s.End("A", Plain)
			s.Mark("B", Wrong, "longest PING %v", longest.Round(time.Microsecond))
			s.Note("%d keys: the longest PING beside KEYS took %v", keys, longest.Round(time.Microsecond))
			return longest > waitPerKey*time.Duration(keys), err
		default:
		}
	}
}

// scanInSteps compares how long the server was busy with one KEYS and with one step of SCAN, by its own statistics:
// nobody else is served meanwhile.
func scanInSteps(ctx context.Context, s *Stage) (bool, error) {
	client, keys, err := s.crowded(ctx)
	if err != nil {
		return false, err
	}
	byKeys, err := listByKeys(ctx, client)
	if err != nil {
		return false, err
	}
	byScan, err := listByScan(ctx, client)
	if err != nil {
		return false, err
	}
	whole, err := busyFor(ctx, client, "keys")
	if err != nil {
		return false, err
	}
	step, err := busyFor(ctx, client, "scan")
	s.Mark("Redis", Wrong, "busy with KEYS for %v", whole)
	s.Mark("Redis", Right, "busy with a step of SCAN for %v", step)
	s.Note("%d keys: KEYS takes %v, a step of SCAN %v; both find %d", keys, whole, step, byKeys)
	return 20*step < whole && byKeys == byScan, err
}

// busyFor is how long the server takes for a command, on average.
func busyFor(ctx context.Context, client *redis.Client, command string) (time.Duration, error) {
	stats, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(stats, "cmdstat_"+command+":")
	_, after, _ = strings.Cut(after, "usec_per_call=")
	value, _, _ := strings.Cut(after, ",")
	micros, err := strconv.ParseFloat(value, 64)
	if !found || err != nil {
		return 0, fmt.Errorf("Redis tells no time for %s: %w", command, err)
	}
	return time.Duration(micros * float64(time.Microsecond)), nil
}
