//go:build chaos

package robust_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/robust"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

var (
	rounds = flag.Int("rounds", 1, "how often every fault is to happen")
	pairs  = flag.Int("pairs", 6, "with -long, how many pairs of faults are to happen after that")
	long   = flag.Bool("long", false, "all faults, not only those that are over soon")
	slower = flag.Float64("slower", 0, "how many times longer than promised recovery may take, on a busy machine; 0: not longer with -long, else 15 times")
)

// minimumRate is how many operations a second must be done, or refused for a reason of their own, before a fault: breaking what does
// nothing shows nothing.
const minimumRate = 10

// How long every process may take to answer again after a fault is over.
const (
	soon         = 2 * time.Second
	afterMove    = 5 * time.Second // to another server, or after two faults at once
	slowerInCI   = 15
	sessionLimit = 60 // of Postgres; few enough to take them all
)

// chaos is a world that is broken in one way after the other.
type chaos struct {
	*world
	load     *load
	postgres *sandbox.Postgres
	redis    *sandbox.Redis
	client   *redis.Client // of Redis, past the wires

	setup                   sandbox.PostgresConfig // of Postgres, and of what takes over from it
	redisSetup              sandbox.RedisConfig
	postgresTime, redisTime *sandbox.Clock // nil: it has that of the system, which nobody sets
	migrations, takeovers   int            // so far
}

// part of an installation that a fault is about.
type part int

// The parts, in the order in which two of them are broken; they are mended the other way round, since a process starts only with its ledger.
const (
	several part = iota // such a fault happens alone
	process
	inRedis
	inPostgres
	wireToRedis
	wireToPostgres
)

// breakage is one way to break something.
type breakage struct {
	name  string
	short bool // over soon
	part  part
	// Between strike and mend the load goes on for so long, and until it got so many answers.
	lasts   time.Duration
	answers int64
	limit   time.Duration // of recovery; 0: soon
	// strike breaks it, fails the test unless it saw that it was broken, and returns what mends it; nil: it is over by itself.
	strike func(c *chaos) (mend func())
}

// TestNothingIsLostUnderFaults breaks one thing after the other, in an order drawn from the seed, and then two at a time.
//
//nolint:paralleltest // see what it does with -long
func TestNothingIsLostUnderFaults(t *testing.T) {
	if !*long { // then recovery is held to what is promised
		t.Parallel()
	}
	c := newChaos(t, sandbox.PostgresConfig{})
	var faults []robust.Fault
	for range *rounds {
		list := c.breakages()
		c.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, b := range list {
			if b.short || *long {
				faults = append(faults, c.suffer(b))
			}
		}
		if *long {
			for range *pairs {
				faults = append(faults, c.suffer(c.pairOf(list)))
			}
		}
	}
	c.conclude(faults)
}

// conclude ends the load and checks what was seen.
func (c *chaos) conclude(faults []robust.Fault) {
	c.t.Helper()
	h := c.load.end()
	c.load.probe(h)
	h.Faults = faults
	count(h)
	found := c.finish(h)
	report(c.t, h, len(found))
	if len(found) > 0 {
		c.keep(h, found)
	}
	for _, s := range c.services {
		s.close() // while there is a ledger to finish with
	}
}

func newChaos(t *testing.T, setup sandbox.PostgresConfig) *chaos {
	c := &chaos{
		setup: setup, redisSetup: sandbox.RedisConfig{Settings: map[string]string{"enable-debug-command": "local"}},
		postgresTime: newClock(t), redisTime: newClock(t),
	}
	c.setup.Settings = map[string]string{"max_connections": strconv.Itoa(sessionLimit)}
	maps.Copy(c.setup.Settings, setup.Settings)
	if c.postgresTime != nil {
		c.setup.Env, c.redisSetup.Env = c.postgresTime.Env(), c.redisTime.Env()
	}
	c.postgres, c.redis = sandbox.OwnPostgres(t, c.setup), sandbox.OwnRedis(t, c.redisSetup)
	c.world = newWorld(t, worldConfig{command: withDefects(t), postgres: c.postgres, redis: c.redis})
	c.client = c.redisClient()
	c.load = c.begin()
	return c
}

// newClock is nil where none can be built.
func newClock(t *testing.T) *sandbox.Clock {
	t.Helper()
	clock, err := sandbox.NewClock(t.Context())
	if errors.Is(err, sandbox.ErrNoCompiler) {
		t.Log("no clock will be set: ", err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clock.Close() }) // the system clears what is left
	return clock
}

// pairOf two parts at once.
func (c *chaos) pairOf(list []breakage) breakage {
	for {
		a, b := list[c.random.IntN(len(list))], list[c.random.IntN(len(list))]
		if a.part == several || a.part >= b.part {
			continue
		}
		return breakage{
			name: a.name + ", and " + b.name, lasts: max(a.lasts, b.lasts), answers: min(a.answers, b.answers), limit: afterMove,
			strike: func(c *chaos) func() {
				mends := []func(){a.strike(c), b.strike(c)}
				return func() {
					for _, mend := range slices.Backward(mends) {
						if mend != nil {
							mend()
						}
					}
				}
			},
		}
	}
}

// suffer one fault and wait until every process answers again.
func (c *chaos) suffer(b breakage) (f robust.Fault) {
	c.t.Helper()
	before, began := c.load.served.Load(), time.Now()
	c.load.awaitAnswers(20, time.Second)
	if f.RateBefore = float64(c.load.served.Load()-before) / time.Since(began).Seconds(); f.RateBefore < minimumRate {
		c.t.Errorf("%s: only %.0f operations a second before it", b.name, f.RateBefore)
	}
	f.Name, f.From = b.name, c.now()
	mend := b.strike(c)
	c.load.awaitAnswers(b.answers, b.lasts)
	if mend != nil {
		mend()
	}
	f.To = c.now()
	f.Recovery = c.awaitRecovery(&b, f.To)
	return f
}

// allowed is how long recovery may take here.
func (b *breakage) allowed() time.Duration {
	times := *slower
	switch {
	case times > 0:
	case *long:
		times = 1
	default:
		times = slowerInCI
	}
	return time.Duration(times * float64(cmp.Or(b.limit, soon)))
}

// awaitRecovery until each process has done, or refused for a reason of its own, a write that was called after the fault.
func (c *chaos) awaitRecovery(b *breakage, healed time.Duration) time.Duration {
	c.t.Helper()
	limit := b.allowed()
	for ; ; time.Sleep(time.Millisecond) {
		took := c.now() - healed
		if c.load.settled[0].Load() > int64(healed) && c.load.settled[1].Load() > int64(healed) {
			if took > limit {
				c.t.Errorf("%s: a process took %v to work again, more than %v", b.name, took, limit)
			}
			return took
		}
		if took > patience {
			c.t.Fatalf("%s: a process has not worked for %v since:\n%s\n%s", b.name, took, c.services[0].tail(), c.services[1].tail())
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
			case op.Shed():
				f.Shed++
			default:
				f.Done++
			}
		}
	}
}

func report(t testing.TB, h *robust.History, violations int) {
	var text strings.Builder
	var slowest time.Duration
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "fault\tlasted\tserved/s before\tduring it: served\tnothing done\tunknown\trecovery")
	for _, f := range h.Faults {
		slowest = max(slowest, f.Recovery)
		fmt.Fprintf(table, "%s\t%v\t%.0f\t%d\t%d\t%d\t%v\n", f.Name, (f.To - f.From).Round(10*time.Millisecond), f.RateBefore,
			f.Done, f.Shed, f.Not, f.Recovery.Round(time.Millisecond))
	}
	_ = table.Flush() // a builder takes everything
	t.Logf("seed %d: %d faults, %d operations, %d movements, %d violations, slowest recovery %v\n%s", h.Seed, len(h.Faults), len(h.Ops),
		len(h.Ledger.Movements), violations, slowest.Round(time.Millisecond), text.String())
}

// probe asks for what is there, and for one unit more, when nobody else wants anything: a refusal must be exact then.
func (l *load) probe(h *robust.History) {
	l.world.t.Helper()
	l.cut = 0
	<-time.After(robust.TicketLife + time.Second) // what unanswered requests wanted stays refused until then
	c := l.customer(0)
	from := len(l.ops)
	for i := range cold + 1 {
		sku := skuOf(i)
		c.at(i%2, robust.Deduct, of(sku, 1_000_000)) // refused, after what has expired on the item is released
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

func (c *chaos) one() *service { return c.services[c.random.IntN(len(c.services))] }

func (c *chaos) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
