package lab

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// oneConsumer is mutual exclusion by partition: one consumer for each, and no lock at all.
func oneConsumer() *Experiment {
	return &Experiment{
		Number: 23, Name: "one-consumer-per-partition",
		Question: "Does one consumer per partition make locks unnecessary?",
		Claim: "Until a consumer is paused: the group gives its partition to another, and when it goes on, both work off the same " +
			"message. The number of the assignment, checked where the work is written, is the fencing token.",
		Setup: "A Redis stream with a consumer group as the partition. A reads a message and is stopped; B takes over what has not " +
			"been acknowledged (XAUTOCLAIM), works it off and acknowledges it. Then A goes on.",
		Anomalies:   []Case{{"one message is worked off twice, by two consumers", rebalance(blindly, played.overwritten)}},
		Protections: []Case{{"epoch: the partition's new owner has a larger number, and the old one's write is refused", rebalance(withToken, refusedByStore)}},
		Roles:       holderRole,
	}
}

const (
	consumerGroup = "workers"
	idleLimit     = 300 * time.Millisecond // after which a consumer counts as gone
)

// rebalance plays a consumer that is paused with a message in hand.
func rebalance(how string, seen func(played) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		client, err := s.redisClient(ctx)
		if err != nil {
			return false, err
		}
		if err := client.XGroupCreateMkStream(ctx, s.Name(), consumerGroup, "0").Err(); err != nil {
			return false, err
		}
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: s.Name(), Values: []string{"order", "1"}}).Err(); err != nil {
			return false, err
		}
		where := lockSpec{Kind: partition, Servers: []string{client.Options().Addr}}
		p, err := scene{A: where, B: where, How: how, Befalls: standStill}.play(ctx, s)
		return err == nil && seen(p), err
	}
}

// consume reads the next message of a partition, or takes over one whose consumer does not answer. The number of the
// assignment is drawn from the database before the message is looked for, so that it grows from owner to owner.
func (l lockSpec) consume(pool *pgxpool.Pool) acquirer {
	return func(ctx context.Context, name, owner string) (heldLock, error) {
		client := newRedisClient(l.Servers[0])
		for tick := time.Tick(5 * time.Millisecond); ; {
			epoch, err := nextEpoch(ctx, pool)
			if err != nil {
				return heldLock{}, err
			}
			got, err := readOrClaim(ctx, client, name, owner)
			if err != nil || got {
				return heldLock{token: epoch}, err
			}
			select {
			case <-tick:
			case <-ctx.Done():
				return heldLock{}, ctx.Err()
			}
		}
	}
}

func nextEpoch(ctx context.Context, pool *pgxpool.Pool) (epoch lock.Token, err error) {
	err = pool.QueryRow(ctx, `SELECT nextval('epochs')`).Scan(&epoch)
	return epoch, err
}

// readOrClaim reports whether the consumer has the message.
func readOrClaim(ctx context.Context, client *redis.Client, stream, consumer string) (bool, error) {
	read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: consumerGroup, Consumer: consumer, Streams: []string{stream, ">"}, Count: 1, Block: -1,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	if len(read) > 0 {
		return true, nil
	}
	claimed, _, err := client.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: stream, Group: consumerGroup, Consumer: consumer, MinIdle: idleLimit, Start: "0", Count: 1,
	}).Result()
	return len(claimed) > 0, err
}
