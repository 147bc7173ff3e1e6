//go:build chaos

package robust_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/fault"
)

// breakages are all there are but the full disk, which has a world of its own.
func (c *chaos) breakages() []breakage {
	list := slices.Concat(ofProcesses(), ofRedis(), ofPostgres(), ofWires(), ofBothStores())
	if c.postgresTime != nil {
		list = append(list, ofClocks()...)
	}
	return list
}

func ofProcesses() []breakage {
	list := []breakage{
		{name: "a process is killed", short: true, part: process, answers: 20, strike: func(c *chaos) func() {
			s := c.one()
			s.signal(syscall.SIGKILL)
			s.await()
			return func() { s.open() }
		}},
		{name: "a process is stopped", short: true, part: process, lasts: 1500 * time.Millisecond, answers: 10, strike: func(c *chaos) func() {
			s := c.one()
			s.signal(syscall.SIGSTOP)
			c.await("it is stopped", s.stopped)
			return func() { s.signal(syscall.SIGCONT) }
		}},
		{name: "rolling restart, with a migration in between", short: true, strike: func(c *chaos) func() {
			for i, s := range c.services {
				if i > 0 {
					c.migrate()
				}
				s.signal(syscall.SIGTERM)
				s.await()
				if !s.cmd.ProcessState.Success() {
					c.t.Errorf("it did not stop in order: %s\n%s", s.cmd.ProcessState, s.tail())
				}
				s.open()
			}
			return nil
		}},
	}
	for i, point := range defect.Points() {
		list = append(list,
			breakage{name: "a process is killed at " + string(point), short: i%2 == 0, strike: func(c *chaos) func() { return c.dieAt(point) }},
			breakage{
				name: "a process is stopped at " + string(point), lasts: 1500 * time.Millisecond, answers: 10,
				strike: func(c *chaos) func() { return c.freezeAt(point) },
			},
		)
	}
	return list
}

func ofRedis() []breakage {
	return []breakage{
		{name: "Redis is killed and comes back empty", short: true, part: inRedis, lasts: 500 * time.Millisecond, answers: 20, strike: func(c *chaos) func() {
			c.redis.Kill()
			return func() { c.restartRedis() }
		}},
		{name: "Redis is stopped", part: inRedis, lasts: time.Second, answers: 20, strike: func(c *chaos) func() {
			c.must(c.redis.Pause())
			return func() { c.must(c.redis.Resume()) }
		}},
		{name: "Redis is flushed", short: true, part: inRedis, answers: 20, strike: func(c *chaos) func() {
			if n := c.client.DBSize(context.Background()).Val(); n == 0 {
				c.t.Error("there is nothing to flush")
			}
			c.must(c.client.FlushAll(context.Background()).Err())
			return nil
		}},
		{name: "Redis is set back to an old state", short: true, part: inRedis, answers: 20, strike: setBack},
		{name: "Redis is out of memory", short: true, part: inRedis, lasts: 500 * time.Millisecond, answers: 20, strike: func(c *chaos) func() {
			c.must(c.client.ConfigSet(context.Background(), "maxmemory", "1").Err())
			c.refusesWrites("OOM")
			return func() { c.must(c.client.ConfigSet(context.Background(), "maxmemory", "0").Err()) }
		}},
		{name: "Redis takes no writes", part: inRedis, lasts: 500 * time.Millisecond, answers: 20, strike: func(c *chaos) func() {
			c.must(c.client.ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
			c.refusesWrites("READONLY")
			return func() { c.must(c.client.ReplicaOf(context.Background(), "NO", "ONE").Err()) }
		}},
		{name: "Redis is loading", part: inRedis, answers: 20, strike: loading},
		{name: "a replica that is behind takes over from Redis", part: inRedis, lasts: 500 * time.Millisecond, answers: 20, limit: afterMove, strike: replicaTakesOver},
	}
}

func ofPostgres() []breakage {
	return []breakage{
		{name: "Postgres is killed", short: true, part: inPostgres, strike: func(c *chaos) func() {
			c.postgres.Kill()
			return func() { c.restartPostgres() }
		}},
		{name: "Postgres is gone for longer than a request lasts", part: inPostgres, lasts: 6 * time.Second, answers: 20, strike: func(c *chaos) func() {
			c.postgres.Kill()
			return func() { c.restartPostgres() }
		}},
		{name: "Postgres is restarted in order", part: inPostgres, strike: func(c *chaos) func() {
			c.restartPostgres()
			return nil
		}},
		{name: "Postgres stands still", part: inPostgres, lasts: time.Second, strike: func(c *chaos) func() {
			c.must(c.postgres.Pause())
			return func() { c.must(c.postgres.Resume()) }
		}},
		{name: "Postgres ends every session that writes", short: true, part: inPostgres, strike: func(c *chaos) func() {
			for _, pid := range c.sessions() {
				c.administer("SELECT pg_terminate_backend(" + strconv.Itoa(pid) + ")")
			}
			return nil
		}},
		{name: "a session of Postgres is killed", part: inPostgres, strike: func(c *chaos) func() {
			pids := c.sessions()
			c.must(syscall.Kill(pids[0], syscall.SIGKILL))
			c.await("Postgres ends all others, to recover", func() bool {
				return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
			})
			return func() { c.await("Postgres is back", c.answers) }
		}},
		{name: "others have taken all sessions of Postgres", part: inPostgres, lasts: 1500 * time.Millisecond, strike: takeAllSessions},
		{name: "a synchronous standby takes over from Postgres", part: inPostgres, limit: afterMove, strike: standbyTakesOver},
		{name: "a synchronous standby that was cut off takes over from Postgres", part: inPostgres, limit: afterMove, strike: cutOffTakesOver},
		{name: "the synchronous standby of Postgres is gone", part: inPostgres, lasts: time.Second, limit: afterMove, strike: standbyIsGone},
	}
}

func ofWires() []breakage {
	return []breakage{
		{name: "replies to commits are lost", short: true, strike: atCommits(fault.LoseReply)},
		{name: "commits are lost", strike: atCommits(fault.LoseRequest)},
		{name: "the wire breaks in the middle of a commit", strike: atCommits(fault.Disconnect)},
		{name: "the wire to Postgres is slow", part: wireToPostgres, lasts: 2 * time.Second, answers: 20, strike: slow(toPostgres, (*fault.Proxy).DelayRequests)},
		{name: "the wire from Postgres is slow", part: wireToPostgres, lasts: 2 * time.Second, answers: 20, strike: slow(toPostgres, (*fault.Proxy).DelayReplies)},
		{name: "the wire to Redis is slow", part: wireToRedis, lasts: 2 * time.Second, answers: 20, strike: slow(toRedis, (*fault.Proxy).DelayRequests)},
		{name: "the wire from Redis is slow", part: wireToRedis, lasts: 2 * time.Second, answers: 20, strike: slow(toRedis, (*fault.Proxy).DelayReplies)},
		{name: "the wire to Postgres loses everything", part: wireToPostgres, lasts: 3 * time.Second, answers: 20, strike: onWire(toPostgres, (*fault.Proxy).Swallow)},
		{name: "the wire to Redis loses everything", short: true, part: wireToRedis, lasts: time.Second, answers: 20, strike: onWire(toRedis, (*fault.Proxy).Swallow)},
		{name: "the wire to Postgres is held up, and then delivers", part: wireToPostgres, lasts: 2 * time.Second, answers: 20, strike: onWire(toPostgres, (*fault.Proxy).Stall)},
	}
}

func toPostgres(s *service) *fault.Proxy { return s.postgres }
func toRedis(s *service) *fault.Proxy    { return s.redis }

// onWire does something to the wire of one process, until it is restored.
func onWire(wire func(*service) *fault.Proxy, do func(*fault.Proxy)) func(*chaos) func() {
	return func(c *chaos) func() {
		w := wire(c.one())
		do(w)
		return w.Restore
	}
}

// slow makes one way of a wire as slow as a bad network.
func slow(wire func(*service) *fault.Proxy, delay func(*fault.Proxy, time.Duration)) func(*chaos) func() {
	return func(c *chaos) func() {
		return onWire(wire, func(w *fault.Proxy) { delay(w, c.latency()) })(c)
	}
}

func ofBothStores() []breakage {
	return []breakage{
		{name: "both stores are killed, Redis comes back first", lasts: 500 * time.Millisecond, strike: killBoth((*chaos).restartRedis, (*chaos).restartPostgres)},
		{name: "both stores are killed, Postgres comes back first", lasts: 500 * time.Millisecond, strike: killBoth((*chaos).restartPostgres, (*chaos).restartRedis)},
	}
}

func (c *chaos) restartRedis()    { c.must(c.redis.Restart(context.Background())) }
func (c *chaos) restartPostgres() { c.must(c.postgres.Restart(context.Background())) }

// killBoth stores, and have them come back one after the other.
func killBoth(first, second func(*chaos)) func(*chaos) func() {
	return func(c *chaos) func() {
		c.redis.Kill()
		c.postgres.Kill()
		return func() {
			first(c)
			second(c)
		}
	}
}

func ofClocks() []breakage {
	var list []breakage
	for way, by := range map[string]time.Duration{"forward": day, "back": -day} {
		list = append(list,
			breakage{name: "the clock of Redis is set " + way + ", and right again", part: inRedis, lasts: time.Second, answers: 20, strike: func(c *chaos) func() {
				c.must(c.redisTime.Set(by))
				if told := c.client.Time(context.Background()).Val(); time.Until(told).Round(day) != by {
					c.t.Errorf("Redis says it is %v", told)
				}
				return func() { c.must(c.redisTime.Set(0)) }
			}},
			breakage{name: "the clock of Postgres is set " + way + ", and right again", part: inPostgres, lasts: time.Second, answers: 20, strike: func(c *chaos) func() {
				c.must(c.postgresTime.Set(by))
				var told time.Time
				c.ask("SELECT clock_timestamp()", &told)
				if time.Until(told).Round(day) != by {
					c.t.Errorf("Postgres says it is %v", told)
				}
				return func() { c.must(c.postgresTime.Set(0)) }
			}},
		)
	}
	slices.SortFunc(list, func(a, b breakage) int { return strings.Compare(a.name, b.name) }) // the seed must find the same list
	return list
}

// latency of a bad network.
func (c *chaos) latency() time.Duration {
	return time.Duration(50+c.random.IntN(450)) * time.Millisecond
}

// atCommits does something to the wire of each process, three times, at a statement that writes a deduction.
func atCommits(action fault.Action) func(*chaos) func() {
	return func(c *chaos) func() {
		for range 3 {
			for _, s := range c.services {
				c.atWrite(s, action)
			}
		}
		return nil
	}
}

// migrate the schema as a next release would, under load: processes that do not know of it go on.
func (c *chaos) migrate() {
	c.t.Helper()
	c.migrations++
	for _, table := range []string{"items", "deductions", "deduction_lines", "movements", "operations"} {
		c.administer(fmt.Sprintf("ALTER TABLE %s ADD COLUMN next_%d integer NOT NULL DEFAULT 1", table, c.migrations))
	}
	c.administer(fmt.Sprintf("CREATE INDEX CONCURRENTLY next_%d ON movements (next_%[1]d)", c.migrations))
}

// restart a process with a failpoint in it, which it may reach before it serves.
func (c *chaos) restart(point defect.Point, signal string) *service {
	c.t.Helper()
	s := c.one()
	s.signal(syscall.SIGTERM)
	s.await()
	passage := 1 + c.random.IntN(20)
	if point == defect.FiguresRead || point == defect.DueListed {
		passage = 1 // a process passes there once a second at most
	}
	s.begin(fmt.Sprintf("HOLDFAST_FAILPOINT=%s %s %d", point, signal, passage))
	return s
}

func (c *chaos) dieAt(point defect.Point) func() {
	c.t.Helper()
	s := c.restart(point, "kill")
	s.await()
	if state := s.cmd.ProcessState.String(); state != "signal: killed" {
		c.t.Errorf("it was not killed at %s: %s", point, state)
	}
	return func() { s.open() }
}

func (c *chaos) freezeAt(point defect.Point) func() {
	c.t.Helper()
	s := c.restart(point, "stop")
	c.await("it is stopped at "+string(point), s.stopped)
	return func() { s.signal(syscall.SIGCONT) }
}

// await something that the fault consists of.
func (c *chaos) await(what string, holds func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not seen: %s", what)
		}
	}
}

// stopped reports whether the process stands still, as the system tells it.
func (s *service) stopped() bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// refusesWrites waits until Redis answers a write with an error like this one.
func (c *chaos) refusesWrites(with string) {
	c.t.Helper()
	c.await("Redis answers writes with "+with, func() bool {
		err := c.client.Set(context.Background(), "robust", "1", time.Second).Err()
		return err != nil && strings.Contains(err.Error(), with)
	})
}

// setBack everything Redis has to what it was half a second before, as a failover to a replica behind does.
func setBack(c *chaos) func() {
	ctx := context.Background()
	keys, err := c.client.Keys(ctx, "*").Result()
	c.must(err)
	dumps := map[string]string{}
	for _, key := range keys {
		if dump, err := c.client.Dump(ctx, key).Result(); err == nil {
			dumps[key] = dump
		}
	}
	if len(dumps) == 0 {
		c.t.Error("there is nothing to set back")
	}
	c.load.awaitAnswers(20, 500*time.Millisecond)
	for key, dump := range dumps {
		c.must(c.client.RestoreReplace(ctx, key, time.Hour, dump).Err())
	}
	return nil
}

// loading has Redis save what it has and load it again, slowly; it answers nothing meanwhile, as after a restart with much to load.
func loading(c *chaos) func() {
	ctx := context.Background()
	const filler, each = 3000, 500 // keys, and microseconds to load one
	pipe := c.client.Pipeline()
	for i := range filler {
		pipe.Set(ctx, "robust-filler-"+strconv.Itoa(i), "1", 10*time.Second)
	}
	_, err := pipe.Exec(ctx)
	c.must(err)
	c.must(c.client.ConfigSet(ctx, "key-load-delay", strconv.Itoa(each)).Err())
	c.must(c.client.ConfigSet(ctx, "loading-process-events-interval-bytes", "1024").Err())
	loaded := make(chan error, 1)
	reloading := c.redisClient()
	go func() { loaded <- reloading.Do(ctx, "DEBUG", "RELOAD").Err() }()
	c.refusesWrites("LOADING")
	return func() {
		c.must(<-loaded)
		c.must(c.client.ConfigSet(ctx, "key-load-delay", "0").Err())
		saved, err := c.client.ConfigGet(ctx, "dir").Result()
		c.must(err)
		c.must(os.Remove(filepath.Join(saved["dir"], "dump.rdb"))) // it would be there after a later restart
	}
}

// sessions are the processes of all sessions that write; there must be one.
func (c *chaos) sessions() []int {
	c.t.Helper()
	var pids []int
	c.ask("SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = current_database()", &pids)
	if len(pids) == 0 {
		c.t.Fatal("no session writes")
	}
	return pids
}

// answers reports whether Postgres takes connections.
func (c *chaos) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url)
	if err == nil {
		_ = conn.Close(ctx) // nothing was asked
	}
	return err == nil
}

// ask Postgres for one value, past the wires.
func (c *chaos) ask(query string, value any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url)
	c.must(err)
	defer conn.Close(ctx)
	c.must(conn.QueryRow(ctx, query).Scan(value))
}
