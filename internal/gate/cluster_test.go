package gate_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func cluster(t testing.TB) (sandbox.RedisGroup, redis.UniversalClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nodes, err := sandbox.StartRedisCluster(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := nodes.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return nodes, dial(t, "redis+cluster://"+strings.Join(nodes.Addrs()[:2], ","))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	nodes, client := cluster(t)
	if err := gate.CheckPolicy(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	t.Run("hostile SKUs", func(t *testing.T) {
		s := newShelf()
		testHostileSKUs(t, s, open(t, client, s, gate.Config{TicketLife: time.Minute}))
	})
	t.Run("all lines or none", func(t *testing.T) { testClusterAllOrNone(t, client) })
	t.Run("many takers", func(t *testing.T) { testClusterManyTakers(t, client) })
	t.Run("a master dies", func(t *testing.T) { testClusterFailover(t, nodes, client) })
}

// spread are SKUs in all slot groups.
func spread() []string {
	var skus []string
	for c := 'A'; c <= 'Z'; c++ {
		skus = append(skus, "spread-"+string(c), string(c))
	}
	return skus
}

func testClusterAllOrNone(t *testing.T, client redis.UniversalClient) {
	s := newShelf()
	skus := spread()
	for _, sku := range skus {
		s.put(sku, 1, 2)
	}
	s.put(skus[20], 1, 1)
	g := open(t, client, s, gate.Config{TicketLife: time.Minute})
	a := g.Take(t.Context(), order(1), lines(2, skus...))
	expect(t, a, gate.Short)
	if len(a.Short) != 1 || a.Short[0].Line != 20 {
		t.Fatalf("%+v", a)
	}
	a = g.Take(t.Context(), order(1), lines(2, append(skus, "unknown")...))
	if a.Verdict != gate.UnknownItem && a.Verdict != gate.Short {
		t.Fatalf("%+v", a)
	}
	eventually(t, "nothing is left of what other groups granted", func() bool {
		for _, sku := range skus {
			if f := peek(t, g, sku); f.Outstanding != 0 || len(f.Tickets) != 0 {
				return false
			}
		}
		return true
	})
	expect(t, g.Take(t.Context(), order(2), lines(1, skus...)), gate.Granted)
	expect(t, g.Take(t.Context(), order(2), lines(1, skus...)), gate.Shared)
	expect(t, g.Take(t.Context(), order(2), lines(1, "A", "Z")), gate.Shared)
	for _, sku := range skus {
		if f := peek(t, g, sku); f.Outstanding != 1 || len(f.Tickets) != 1 {
			t.Fatalf("%s: %+v", sku, f)
		}
	}
	g.Drop(gate.Wish{Ticket: order(2), Lines: lines(1, skus...)})
	eventually(t, "all tickets go", func() bool {
		return g.Take(t.Context(), order(3), lines(1, skus...)).Verdict == gate.Granted
	})
}

func testClusterManyTakers(t *testing.T, client redis.UniversalClient) {
	const takers, units = 300, 20
	s := newShelf()
	skus := []string{"many-1", "many-2", "many-3", "many-4"}
	for _, sku := range skus {
		s.put(sku, 1, units)
	}
	g := open(t, client, s, gate.Config{TicketLife: time.Minute})
	var granted atomic.Int64
	var group sync.WaitGroup
	for n := range takers {
		group.Go(func() {
			switch a := g.Take(t.Context(), order(n), lines(1, skus...)); a.Verdict {
			case gate.Granted:
				granted.Add(1)
			case gate.Short:
			default:
				t.Errorf("%+v", a)
			}
		})
	}
	group.Wait()
	if granted.Load() > units {
		t.Fatalf("%d granted", granted.Load())
	}
	eventually(t, "only tickets of those who were granted are left", func() bool {
		for _, sku := range skus {
			if f := peek(t, g, sku); int64(f.Outstanding) != granted.Load() {
				return false
			}
		}
		return true
	})
}

func testClusterFailover(t *testing.T, nodes sandbox.RedisGroup, client redis.UniversalClient) {
	s := newShelf()
	skus := spread()
	for _, sku := range skus {
		s.put(sku, 1, 1_000_000)
	}
	g := open(t, client, s, gate.Config{})
	for n, sku := range skus {
		granted(t, g, order(n), lines(1, sku))
	}
	nodes[1].Kill()
	bypassed, passed := 0, 0
	for n, sku := range skus {
		switch a := g.Take(t.Context(), order(1000+n), lines(1, sku)); a.Verdict {
		case gate.Bypassed:
			bypassed++
		case gate.Granted:
			passed++
		default:
			t.Fatalf("%+v", a)
		}
	}
	if bypassed == 0 || passed == 0 {
		t.Fatalf("with one master of three gone, %d are bypassed and %d pass", bypassed, passed)
	}
	for n, sku := range skus {
		granted(t, g, order(2000+n), lines(1, sku))
	}
}
