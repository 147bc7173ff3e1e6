//go:build chaos

package robust_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/robust"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

var (
	rounds   = flag.Int("rounds", 1, "how often every fault is to happen")
	long     = flag.Bool("long", false, "all faults, not only those that are over soon")
	recovery = flag.Duration("recovery", 30*time.Second, "how long every process may take to answer again after a fault; a busy machine needs more than the service")
)

// minimumRate is how many operations a second must get a clear answer before a fault: breaking what does nothing shows nothing.
const minimumRate = 10

// chaos is a world that is broken in one way after the other.
type chaos struct {
	*world
	load     *load
	postgres *sandbox.Postgres
	redis    *sandbox.Redis
	client   *redis.Client
}

// breakage breaks something, lets the load go on for a while, and mends it. It fails the test unless it saw that it was broken.
type breakage struct {
	name  string
	short bool
	run   func(c *chaos)
}

// TestNothingIsLostUnderFaults breaks one thing after the other, in an order drawn from the seed.
func TestNothingIsLostUnderFaults(t *testing.T) {
	c := newChaos(t)
	var faults []robust.Fault
	for range *rounds {
		list := breakages()
		c.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, b := range list {
			if b.short || *long {
				faults = append(faults, c.suffer(b))
			}
		}
	}
	h := c.load.end()
	c.load.probe(h)
	h.Faults = faults
	count(h)
	found := c.finish(h)
	report(t, h)
	if len(found) > 0 {
		c.keep(h, found)
	}
}

func newChaos(t *testing.T) *chaos {
	c := &chaos{postgres: sandbox.OwnPostgres(t, sandbox.PostgresConfig{}), redis: sandbox.OwnRedis(t, sandbox.RedisConfig{})}
	c.world = newWorld(t, worldConfig{command: withDefects(t), postgres: c.postgres, redis: c.redis})
	c.client = c.redisClient()
	c.load = c.begin()
	return c
}

// suffer one fault and wait until every process answers again.
func (c *chaos) suffer(b breakage) robust.Fault {
	c.t.Helper()
	f := robust.Fault{Name: b.name}
	before, began := c.load.answers.Load(), time.Now()
	c.load.awaitAnswers(20, time.Second)
	if f.RateBefore = float64(c.load.answers.Load()-before) / time.Since(began).Seconds(); f.RateBefore < minimumRate {
		c.t.Errorf("%s: only %.0f answers a second before it", b.name, f.RateBefore)
	}
	f.From = c.now()
	b.run(c)
	f.To = c.now()
	f.Recovery = c.awaitRecovery(b.name, f.To)
	return f
}

// awaitRecovery until each process has given a clear answer to a request of after the fault.
func (c *chaos) awaitRecovery(name string, healed time.Duration) time.Duration {
	c.t.Helper()
	for ; ; time.Sleep(time.Millisecond) {
		took := c.now() - healed
		if c.load.settled[0].Load() > int64(healed) && c.load.settled[1].Load() > int64(healed) {
			if took > *recovery {
				c.t.Errorf("%s: a process took %v to answer again", name, took)
			}
			return took
		}
		if took > patience {
			c.t.Fatalf("%s: a process has not answered for %v since:\n%s\n%s", name, took, c.services[0].tail(), c.services[1].tail())
		}
	}
}

// count the operations that were called while a fault lasted.
func count(h *robust.History) {
	for i := range h.Faults {
		f := &h.Faults[i]
		for j := range h.Ops {
			switch op := &h.Ops[j]; {
			case op.Call < f.From || op.Call > f.To:
			case op.Outcome == robust.Unknown:
				f.Not++
			default:
				f.Done++
			}
		}
	}
}

func report(t *testing.T, h *robust.History) {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d: %d operations, %d movements, %d faults\n", h.Seed, len(h.Ops), len(h.Ledger.Movements), len(h.Faults))
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "fault\tlasted\tanswers/s before\tanswered during it\tnot\trecovery")
	for _, f := range h.Faults {
		fmt.Fprintf(table, "%s\t%v\t%.0f\t%d\t%d\t%v\n", f.Name, (f.To - f.From).Round(10*time.Millisecond), f.RateBefore, f.Done, f.Not, f.Recovery.Round(time.Millisecond))
	}
	_ = table.Flush() // a builder takes everything
	t.Log(text.String())
}

// probe asks for what is there, and for one unit more, when nobody else wants anything: a refusal must be exact then.
func (l *load) probe(h *robust.History) {
	l.world.t.Helper()
	l.stop = make(chan struct{}) // it has been closed
	l.cut = 0
	select { // what unanswered requests wanted stays refused until then
	case <-time.After(robust.TicketLife + time.Second):
	}
	c := l.customer(0)
	from := len(l.ops)
	for i := range cold + 1 {
		sku := skuOf(i)
		level := c.look(sku)
		if level == nil {
			l.world.t.Fatalf("%s cannot be read", sku)
		}
		available := level.OnHand - level.Held
		if more := c.at(i%2, robust.Deduct, of(sku, available+1)); more.Outcome != robust.Refused {
			l.world.t.Errorf("%d of %s were available, and %d were sold", available, sku, available+1)
		}
		if available > 0 {
			if all := c.at(i%2, robust.Deduct, of(sku, available)); all.Outcome != robust.Done {
				l.world.t.Errorf("%d of %s were available, and not to be had: %+v", available, sku, all)
			}
		}
	}
	h.Ops = append(h.Ops[:from:from], l.ops[from:]...)
}

// breakages are all there are.
func breakages() []breakage {
	list := []breakage{
		{"a process is killed", true, func(c *chaos) {
			s := c.one()
			s.signal(syscall.SIGKILL)
			s.await()
			c.load.awaitAnswers(20, 0)
			s.open()
		}},
		{"a process is stopped for 1.5 s", true, func(c *chaos) {
			s := c.one()
			s.signal(syscall.SIGSTOP)
			c.load.awaitAnswers(10, 1500*time.Millisecond)
			s.signal(syscall.SIGCONT)
		}},
		{"rolling restart", true, func(c *chaos) {
			for _, s := range c.services {
				s.signal(syscall.SIGTERM)
				s.await()
				if !s.cmd.ProcessState.Success() {
					c.t.Errorf("it did not stop in order: %s\n%s", s.cmd.ProcessState, s.tail())
				}
				s.open()
			}
		}},
		{"Redis is killed and comes back empty", true, func(c *chaos) {
			c.redis.Kill()
			c.load.awaitAnswers(20, 500*time.Millisecond)
			c.must(c.redis.Restart(context.Background()))
		}},
		{"Redis is stopped for a second", false, func(c *chaos) {
			c.must(c.redis.Pause())
			c.load.awaitAnswers(20, time.Second)
			c.must(c.redis.Resume())
		}},
		{"Redis is flushed", true, func(c *chaos) {
			if n := c.client.DBSize(context.Background()).Val(); n == 0 {
				c.t.Error("there is nothing to flush")
			}
			c.must(c.client.FlushAll(context.Background()).Err())
			c.load.awaitAnswers(20, 0)
		}},
		{"Redis is set back to an old state", true, setBack},
		{"Redis is out of memory", true, func(c *chaos) {
			c.must(c.client.ConfigSet(context.Background(), "maxmemory", "1").Err())
			c.refusesWrites("OOM")
			c.load.awaitAnswers(20, 500*time.Millisecond)
			c.must(c.client.ConfigSet(context.Background(), "maxmemory", "0").Err())
		}},
		{"Redis takes no writes", false, func(c *chaos) {
			c.must(c.client.SlaveOf(context.Background(), "127.0.0.1", "1").Err())
			c.refusesWrites("READONLY")
			c.load.awaitAnswers(20, 500*time.Millisecond)
			c.must(c.client.SlaveOf(context.Background(), "NO", "ONE").Err())
		}},
		{"Postgres is killed", true, func(c *chaos) {
			c.postgres.Kill()
			c.must(c.postgres.Restart(context.Background()))
		}},
		{"Postgres is restarted in order", false, func(c *chaos) { c.must(c.postgres.Restart(context.Background())) }},
		{"Postgres ends every session that writes", true, func(c *chaos) {
			c.sessions(func(pid int) {
				c.administer("SELECT pg_terminate_backend(" + strconv.Itoa(pid) + ")")
			})
		}},
		{"a session of Postgres is killed", false, func(c *chaos) {
			killed := false
			c.sessions(func(pid int) {
				if !killed {
					killed = true
					c.must(syscall.Kill(pid, syscall.SIGKILL)) // Postgres ends all others and recovers
				}
			})
		}},
		{"replies to commits are lost", true, func(c *chaos) {
			for range 3 {
				for _, s := range c.services {
					c.loseReply(s)
				}
			}
		}},
		{"the wire to Postgres is slow", false, func(c *chaos) {
			s := c.one()
			s.postgres.DelayRequests(time.Duration(50+c.random.IntN(200)) * time.Millisecond)
			c.load.awaitAnswers(20, 2*time.Second)
			s.postgres.Restore()
		}},
		{"the wire to Redis is slow", false, func(c *chaos) {
			s := c.one()
			s.redis.DelayReplies(time.Duration(50+c.random.IntN(200)) * time.Millisecond)
			c.load.awaitAnswers(20, 2*time.Second)
			s.redis.Restore()
		}},
		{"the wire to Postgres loses everything", false, func(c *chaos) {
			s := c.one()
			s.postgres.Swallow()
			c.load.awaitAnswers(20, 3*time.Second)
			s.postgres.Restore()
		}},
		{"the wire to Redis loses everything", true, func(c *chaos) {
			s := c.one()
			s.redis.Swallow()
			c.load.awaitAnswers(20, time.Second)
			s.redis.Restore()
		}},
		{"the wire to Postgres is held up, and then delivers", false, func(c *chaos) {
			s := c.one()
			s.postgres.Stall()
			c.load.awaitAnswers(20, 2*time.Second)
			s.postgres.Restore()
		}},
		{"both stores are killed, Redis comes back first", false, func(c *chaos) {
			c.redis.Kill()
			c.postgres.Kill()
			c.must(c.redis.Restart(context.Background()))
			c.must(c.postgres.Restart(context.Background()))
		}},
		{"both stores are killed, Postgres comes back first", false, func(c *chaos) {
			c.postgres.Kill()
			c.redis.Kill()
			c.must(c.postgres.Restart(context.Background()))
			c.must(c.redis.Restart(context.Background()))
		}},
	}
	for i, point := range defect.Points() {
		list = append(list,
			breakage{"a process is killed at " + string(point), i%2 == 0, func(c *chaos) { c.dieAt(point) }},
			breakage{"a process is stopped at " + string(point), false, func(c *chaos) { c.freezeAt(point) }},
		)
	}
	return list
}

func (c *chaos) one() *service { return c.services[c.random.IntN(len(c.services))] }

func (c *chaos) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// restart a process with a failpoint in it.
func (c *chaos) restart(point defect.Point, signal string) *service {
	c.t.Helper()
	s := c.one()
	s.signal(syscall.SIGTERM)
	s.await()
	s.open(fmt.Sprintf("HOLDFAST_FAILPOINT=%s %s %d", point, signal, 5+rand.IntN(20)))
	return s
}

func (c *chaos) dieAt(point defect.Point) {
	c.t.Helper()
	s := c.restart(point, "kill")
	s.await()
	if state := s.cmd.ProcessState.String(); state != "signal: killed" {
		c.t.Errorf("it was not killed at %s: %s", point, state)
	}
	s.open()
}

func (c *chaos) freezeAt(point defect.Point) {
	c.t.Helper()
	s := c.restart(point, "stop")
	for deadline := time.Now().Add(patience); !s.stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("it was not stopped at %s", point)
		}
	}
	c.load.awaitAnswers(10, 1500*time.Millisecond)
	s.signal(syscall.SIGCONT)
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
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := c.client.Set(context.Background(), "robust", "1", time.Second).Err()
		if err != nil && strings.Contains(err.Error(), with) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("Redis takes writes: %v", err)
		}
	}
}

// setBack everything Redis has to what it was half a second before, as a failover to a replica behind does.
func setBack(c *chaos) {
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
	c.load.awaitAnswers(20, 0)
}

// sessions calls do with the process of each session that writes; there must be one.
func (c *chaos) sessions(do func(pid int)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url)
	c.must(err)
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = current_database()")
	c.must(err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	c.must(err)
	_ = conn.Close(ctx) // it may be killed with the others
	if len(pids) == 0 {
		c.t.Error("no session writes")
	}
	for _, pid := range pids {
		do(pid)
	}
}
