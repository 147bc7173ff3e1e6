package gate_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func proxy(t testing.TB, target string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// lostCall is how long a gate waits for a call that a test loses.
const lostCall = 500 * time.Millisecond

func isScript(request []byte) bool { return bytes.Contains(bytes.ToLower(request), []byte("evalsha")) }

// scriptCalls is how many script calls a server has carried out.
func scriptCalls(t testing.TB, client redis.UniversalClient) int {
	t.Helper()
	info, err := client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, "cmdstat_evalsha:calls=")
	if !found {
		return 0
	}
	count, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(count)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// granted polls until the gate is back and grants, and returns the ticket.
func granted(t testing.TB, g *gate.Gate, ticket gate.Ticket, wanted []stock.WantedLine) {
	t.Helper()
	var last gate.Answer
	eventually(t, "the gate grants", func() bool {
		last = g.Take(context.Background(), ticket, wanted)
		if last.Verdict == gate.Shared {
			t.Fatalf("%+v", last)
		}
		return last.Verdict == gate.Granted
	})
}

func TestALostCallLeavesNoTicket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action  fault.Action
		applied int // 1, 0, or -1 for either
	}{
		"request lost":  {fault.LoseRequest, 0},
		"reply lost":    {fault.LoseReply, 1},
		"disconnected":  {fault.Disconnect, -1},
		"request stuck": {fault.HoldRequest, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
			wire := proxy(t, server.Addr())
			s := newShelf()
			s.put("A", 1, 10)
			s.put("B", 1, 10)
			direct := dial(t, "redis://"+server.Addr())
			g := open(t, dial(t, "redis://"+wire.Addr()), s, gate.Config{TicketLife: time.Minute, CallTimeout: lostCall})
			granted(t, g, order(0), lines(1, "A", "B"))
			before := scriptCalls(t, direct)
			fired := wire.OnRequest(isScript, c.action)
			if a := g.Take(t.Context(), order(1), lines(9, "A", "B")); a.Verdict != gate.Bypassed || a.Reason != gate.CallFailed {
				t.Fatalf("%+v", a)
			}
			<-fired
			if n := scriptCalls(t, direct) - before; c.applied >= 0 && n != c.applied {
				t.Fatalf("the script ran %d times", n)
			}
			// The units are free as soon as the gate is back, though the first ticket may have been written.
			granted(t, g, order(2), lines(9, "A", "B"))
			for _, sku := range []string{"A", "B"} {
				if f := peek(t, g, sku); f.Outstanding != 10 || len(f.Tickets) != 2 {
					t.Fatalf("%s: %+v", sku, f)
				}
			}
		})
	}
}

// The ghost of a call that was given up writes its ticket after it was dropped: it runs out.
func TestAGhostsTicketRunsOut(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	wire := proxy(t, server.Addr())
	s := newShelf()
	s.put("A", 1, 10)
	const life = 500 * time.Millisecond
	g := open(t, dial(t, "redis://"+wire.Addr()), s, gate.Config{TicketLife: life, CallTimeout: lostCall})
	granted(t, g, order(0), lines(1, "A"))
	fired := wire.OnRequest(isScript, fault.HoldRequest)
	if a := g.Take(t.Context(), order(1), lines(9, "A")); a.Reason != gate.CallFailed {
		t.Fatalf("%+v", a)
	}
	<-fired
	granted(t, g, order(2), lines(9, "A"))
	g.Drop(gate.Wish{Ticket: order(2), Lines: lines(9, "A")})
	g.Drop(gate.Wish{Ticket: order(0), Lines: lines(1, "A")})
	eventually(t, "they go", func() bool { return len(peek(t, g, "A").Tickets) == 0 })
	wire.Restore()
	granted(t, g, order(3), lines(10, "A"))
}

// News that were on a call that failed, or came while the breaker was open, are told later.
func TestNewsOutliveAFailedCall(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	wire := proxy(t, server.Addr())
	s := newShelf()
	s.put("A", 1, 10)
	prefix := sandbox.Prefix(t)
	g := open(t, dial(t, "redis://"+wire.Addr()), s, gate.Config{Prefix: prefix, TicketLife: time.Minute, CallTimeout: lostCall})
	watcher := open(t, dial(t, "redis://"+server.Addr()), s, gate.Config{Prefix: prefix})
	granted(t, g, order(1), lines(1, "A"))
	fired := wire.OnRequest(isScript, fault.LoseRequest)
	g.Settle([]stock.Levels{s.put("A", 2, 9)})
	g.Drop(gate.Wish{Ticket: order(1), Lines: lines(1, "A")})
	<-fired
	g.Settle([]stock.Levels{s.put("B", 7, 3)})
	eventually(t, "the news arrive", func() bool {
		a, b := peek(t, watcher, "A"), peek(t, watcher, "B")
		return a.Version == 2 && len(a.Tickets) == 0 && b.Version == 7
	})
}

func TestAPausedRedisCostsEachRequestOneTimeoutAtMost(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	s := newShelf()
	s.put("A", 1, 1_000_000)
	const timeout = 100 * time.Millisecond
	g := open(t, dial(t, "redis://"+server.Addr()), s, gate.Config{CallTimeout: timeout, TicketLife: 300 * time.Millisecond})
	granted(t, g, order(0), lines(1, "A"))
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	const callers, requests = 64, 100
	var slowest, failed atomic.Int64
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			mine := 0
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for i := range requests {
				began := time.Now()
				a := g.Take(t.Context(), order(callers*i+n+1), lines(1, "A"))
				slowest.Store(max(slowest.Load(), int64(time.Since(began))))
				switch a.Reason {
				case gate.CallFailed:
					mine++
				case gate.BreakerOpen:
				default:
					t.Errorf("%+v", a)
				}
				<-pace.C
			}
			if mine > 1 {
				t.Errorf("a caller waited for %d calls", mine)
			}
			failed.Add(int64(mine))
		})
	}
	group.Wait()
	if d := time.Duration(slowest.Load()); failed.Load() == 0 || d > timeout+slack {
		t.Errorf("%d requests failed, the slowest took %v", failed.Load(), d)
	}
	t.Logf("%d requests failed with a call, the slowest took %v", failed.Load(), time.Duration(slowest.Load()))
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	granted(t, g, gate.TicketFor("later", "", ""), lines(1, "A"))
	eventually(t, "tickets of before run out", func() bool {
		granted(t, g, gate.TicketFor("later", time.Now().String(), ""), lines(1, "A"))
		for _, held := range peek(t, g, "A").Tickets {
			if held.Deadline.Before(now(t, dial(t, "redis://"+server.Addr()))) {
				return false
			}
		}
		return true
	})
}

func TestAFullQueueSheds(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	wire := proxy(t, server.Addr())
	s := newShelf()
	s.put("A", 1, 1000)
	g := open(t, dial(t, "redis://"+wire.Addr()), s, gate.Config{QueueLimit: 3})
	granted(t, g, order(0), lines(1, "A"))
	fired := wire.OnRequest(isScript, fault.HoldRequest)
	answers := make(chan gate.Answer)
	take := func(n int) { answers <- g.Take(t.Context(), order(n), lines(1, "A")) }
	go take(1)
	<-fired
	for n := range 5 {
		go take(2 + n)
	}
	for range 2 {
		if a := <-answers; a.Reason != gate.QueueFull {
			t.Fatalf("%+v", a)
		}
	}
	wire.Restore()
	for range 4 {
		expect(t, <-answers, gate.Granted)
	}
}

// A caller who gives up leaves no ticket behind.
func TestACallerWhoGivesUpLeavesNoTicket(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	wire := proxy(t, server.Addr())
	s := newShelf()
	s.put("A", 1, 10)
	g := open(t, dial(t, "redis://"+wire.Addr()), s, gate.Config{TicketLife: time.Minute})
	granted(t, g, order(0), lines(1, "A"))
	fired := wire.OnRequest(isScript, fault.HoldRequest)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan gate.Answer)
	go func() { answer <- g.Take(ctx, order(1), lines(9, "A")) }()
	<-fired
	cancel()
	if a := <-answer; a.Verdict != gate.Bypassed || a.Reason != gate.Cancelled {
		t.Fatalf("%+v", a)
	}
	wire.Restore()
	granted(t, g, order(2), lines(9, "A"))
	if f := peek(t, g, "A"); f.Outstanding != 10 || len(f.Tickets) != 2 {
		t.Fatalf("%+v", f)
	}
}

func TestRedisForgetsEverything(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	client := dial(t, "redis://"+server.Addr())
	s := newShelf()
	s.put("A", 4, 10)
	g := open(t, client, s, gate.Config{TicketLife: time.Minute})
	expect(t, g.Take(t.Context(), order(1), lines(10, "A")), gate.Granted)
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	// The ticket is forgotten: its units go out once more, which the ledger will refuse.
	expect(t, g.Take(t.Context(), order(2), lines(10, "A")), gate.Granted)
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, g.Take(t.Context(), order(2), lines(10, "A")), gate.Shared)
	server.Kill()
	<-server.Done()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	granted(t, g, order(3), lines(10, "A"))
	if f := peek(t, g, "A"); f.Version != 4 || f.Outstanding != 10 || len(f.Tickets) != 1 {
		t.Fatalf("%+v", f)
	}
}

// Redis is set back to what it was before units came in: "short" is wrong for no longer than a second.
func TestRedisIsSetBack(t *testing.T) {
	t.Parallel()
	client := shared(t)
	s := newShelf()
	s.put("A", 1, 0)
	prefix := sandbox.Prefix(t)
	g := open(t, client, s, gate.Config{Prefix: prefix})
	expect(t, g.Take(t.Context(), order(1), lines(1, "A")), gate.Short)
	keys := client.Keys(t.Context(), strings.ReplaceAll(prefix, ":", "%3A")+"*").Val()
	if len(keys) != 1 {
		t.Fatal(keys)
	}
	old, err := client.Dump(t.Context(), keys[0]).Result()
	if err != nil {
		t.Fatal(err)
	}
	g.Settle([]stock.Levels{s.put("A", 2, 5)})
	expect(t, g.Take(t.Context(), order(1), lines(1, "A")), gate.Granted)
	if err := client.RestoreReplace(t.Context(), keys[0], time.Hour, old).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	granted(t, g, order(2), lines(5, "A"))
	if d := time.Since(began); d > gate.Freshness+slack {
		t.Fatalf("short for %v", d)
	}
	if f := peek(t, g, "A"); f.Version != 2 || f.Outstanding != 5 {
		t.Fatalf("%+v", f)
	}
}

// While Redis cannot take writes the gate is bypassed, and it comes back by itself.
func TestRedisThatCannotWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, unset []any }{
		"out of memory": {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		"a replica":     {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		"no replicas":   {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
			client := dial(t, "redis://"+server.Addr())
			s := newShelf()
			s.put("A", 1, 10)
			g := open(t, client, s, gate.Config{TicketLife: time.Minute})
			granted(t, g, order(0), lines(1, "A"))
			if err := client.Do(t.Context(), c.set...).Err(); err != nil {
				t.Fatal(err)
			}
			a := g.Take(t.Context(), order(1), lines(4, "A"))
			if a.Verdict != gate.Bypassed || a.Reason != gate.CallFailed {
				t.Fatalf("%+v", a)
			}
			// Probes must not close the breaker: nobody is kept waiting by calls that cannot succeed.
			calls := scriptCalls(t, client)
			end := time.Now().Add(400 * time.Millisecond)
			eventually(t, "some probes fail", func() bool {
				if a := g.Take(t.Context(), order(1), lines(4, "A")); a.Reason != gate.BreakerOpen {
					t.Fatalf("%+v", a)
				}
				return time.Now().After(end)
			})
			if n := scriptCalls(t, client) - calls; n != 0 {
				t.Fatalf("%d calls of the script", n)
			}
			if err := client.Do(t.Context(), c.unset...).Err(); err != nil {
				t.Fatal(err)
			}
			granted(t, g, order(2), lines(9, "A"))
			if f := peek(t, g, "A"); f.Outstanding != 10 || len(f.Tickets) != 2 {
				t.Fatalf("%+v", f)
			}
		})
	}
}
