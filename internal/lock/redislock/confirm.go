package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// errUnconfirmed: too few replicas have what was written.
var errUnconfirmed = errors.New("not confirmed by enough replicas")

// confirmed runs a script and waits, on the same connection, until so many replicas have what it wrote. The error
// is [errUnconfirmed] if the script did its work and they do not have it in time.
func (n *node) confirmed(ctx context.Context, replicas int, limit time.Duration, script *redis.Script, keys []string, args ...any) (int64, error) {
	answer, err := n.runAndWait(ctx, replicas, limit, script.EvalSha, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		answer, err = n.runAndWait(ctx, replicas, limit, script.Eval, keys, args)
	}
	if err != nil && !errors.Is(err, errUnconfirmed) {
		err = classify(err)
	}
	return answer, err
}

type evaluate func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (n *node) runAndWait(ctx context.Context, replicas int, limit time.Duration, eval evaluate, keys []string, args []any) (int64, error) {
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until)/2) // the answer has to come back too
	}
	pipe := n.client.Pipeline()
	cmd := eval(ctx, pipe, keys, args...)
	wait := pipe.Do(ctx, "WAIT", replicas, max(limit.Milliseconds(), 1)) // 0 would be for ever
	_, _ = pipe.Exec(ctx)                                                // each command has its own error
	answer, err := cmd.Int64()
	if err != nil {
		return 0, err
	}
	switch confirmed, err := wait.Int64(); {
	case err != nil:
		return answer, fmt.Errorf("%w: %w", errUnconfirmed, err)
	case confirmed < int64(replicas):
		return answer, fmt.Errorf("%w: %d of %d", errUnconfirmed, confirmed, replicas)
	default:
		return answer, nil
	}
}
