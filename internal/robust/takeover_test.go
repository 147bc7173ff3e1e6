//go:build chaos

package robust_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// standby starts one, over a wire of its own, that commits of Postgres wait for from now on.
func (c *chaos) standby() (*sandbox.Postgres, *fault.Proxy) {
	c.t.Helper()
	c.takeovers++
	link := c.wire(c.postgres.Addr())
	s, err := sandbox.StartPostgresStandby(context.Background(), c.postgres, sandbox.StandbyConfig{
		PostgresConfig: c.setup, Name: fmt.Sprintf("standby%d", c.takeovers), Via: link.Addr(), Synchronous: true,
	})
	c.must(err)
	c.t.Cleanup(func() { _ = s.Stop(context.Background()) }) // it may have been killed
	c.load.awaitAnswers(50, 500*time.Millisecond)
	return s, link
}

// takesOver makes a standby what Postgres was.
func (c *chaos) takesOver(heir *sandbox.Postgres) {
	c.t.Helper()
	c.must(heir.Promote(context.Background()))
	u, err := url.Parse(c.url)
	c.must(err)
	c.postgres, c.url = heir, heir.URL(strings.TrimPrefix(u.Path, "/"))
	for _, s := range c.services {
		s.postgres.Retarget(heir.Addr())
	}
}

// standbyTakesOver: the machine of Postgres is lost, and its standby, which has synced every commit that was acknowledged, takes its place.
func standbyTakesOver(c *chaos) func() {
	heir, _ := c.standby()
	c.postgres.Kill()
	return func() { c.takesOver(heir) }
}

// cutOffTakesOver: the same, after commits have waited for the standby for longer than any request lasts, in vain.
func cutOffTakesOver(c *chaos) func() {
	heir, link := c.standby()
	link.Cut()
	c.awaitStandby()
	c.load.awaitAnswers(0, 7*time.Second)
	c.postgres.Kill()
	return func() { c.takesOver(heir) }
}

// standbyIsGone: commits wait for a standby that has gone, until an operator says that they need not any more.
func standbyIsGone(c *chaos) func() {
	partner, _ := c.standby()
	partner.Kill()
	c.awaitStandby()
	return func() {
		c.administer("ALTER SYSTEM RESET synchronous_standby_names")
		c.administer("SELECT pg_reload_conf()")
	}
}

// awaitStandby until a commit waits for the standby.
func (c *chaos) awaitStandby() {
	c.t.Helper()
	c.await("a commit waits for the standby", func() bool {
		var n int
		c.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", &n)
		return n > 0
	})
}

// replicaTakesOver: Redis is lost, and a replica that has not heard of its last changes takes its place.
func replicaTakesOver(c *chaos) func() {
	ctx := context.Background()
	link := c.wire(c.redis.Addr())
	replica, err := sandbox.StartRedisReplica(ctx, link.Addr(), c.redisSetup)
	c.must(err)
	c.t.Cleanup(func() { _ = replica.Stop(ctx) }) // it may have been killed
	link.Cut()
	c.load.awaitAnswers(50, 500*time.Millisecond)
	has := c.offset("master")
	c.redis.Kill()
	c.redis, c.world.redis = replica, replica.Addr()
	c.client = c.redisClient()
	if behind := has - c.offset("slave"); behind <= 0 {
		c.t.Error("the replica is not behind")
	}
	return func() {
		c.must(replica.Promote(ctx))
		for _, s := range c.services {
			s.redis.Retarget(replica.Addr())
		}
	}
}

// offset is how much of the changes Redis has, as a master or as a replica.
func (c *chaos) offset(role string) int {
	c.t.Helper()
	info, err := c.client.Info(context.Background(), "replication").Result()
	c.must(err)
	found := regexp.MustCompile(role + `_repl_offset:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		c.t.Fatalf("no offset of a %s in %s", role, info)
	}
	n, err := strconv.Atoi(found[1])
	c.must(err)
	return n
}

// takeAllSessions that Postgres can have, and end those of the service.
func takeAllSessions(c *chaos) func() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var taken []*pgx.Conn
	const others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'taker'"
	for left := 1; left > 0; {
		conn, err := pgx.Connect(ctx, c.url+"&application_name=taker")
		if err == nil {
			taken = append(taken, conn)
			continue
		}
		if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != pgerrcode.TooManyConnections {
			c.t.Fatal("take a session:", err)
		}
		c.must(taken[0].QueryRow(ctx, others).Scan(&left))
	}
	return func() {
		for _, conn := range taken {
			c.must(conn.Close(context.Background()))
		}
	}
}
