package gate_test

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

// shelf is what the ledger would say: the figures of a few items.
type shelf struct {
	mu     sync.Mutex
	levels map[stock.Item]stock.Levels
	reads  int // calls of confirm
	err    error
}

func newShelf() *shelf { return &shelf{levels: make(map[stock.Item]stock.Levels)} }

func (s *shelf) put(item stock.Item, version int64, onHand stock.Quantity) stock.Levels {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := stock.Levels{Item: item, OnHand: onHand, Version: version, Epoch: 1}
	s.levels[item] = l
	return l
}

func (s *shelf) confirm(_ context.Context, items []stock.Item) ([]stock.Levels, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	var found []stock.Levels
	for _, item := range items {
		if l, ok := s.levels[item]; ok {
			found = append(found, l)
		}
	}
	return found, s.err
}

func item(sku string) stock.Item {
	return stock.Item{SKU: stock.SKU(sku), Location: stock.DefaultLocation}
}

func lines(quantity stock.Quantity, skus ...string) []stock.WantedLine {
	var l []stock.WantedLine
	for _, sku := range skus {
		l = append(l, stock.WantedLine{Item: item(sku), Quantity: quantity})
	}
	return l
}

func dial(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	client, err := gate.Dial("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t testing.TB, client redis.UniversalClient, s *shelf, cfg gate.Config) *gate.Gate {
	t.Helper()
	cfg.Confirm = s.confirm
	if cfg.Prefix == "" {
		cfg.Prefix = sandbox.Prefix(t)
	}
	g := gate.New(client, cfg)
	t.Cleanup(g.Close)
	return g
}

func TestTakeLoadsGrantsSharesAndRefuses(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put(item("A"), 7, 3)
	g := open(t, dial(t, sandbox.RedisAddr(t)), s, gate.Config{})
	one, two := gate.TicketFor("c", "1", ""), gate.TicketFor("c", "2", "")
	if a := g.Take(t.Context(), one, lines(2, "A")); a.Verdict != gate.Granted {
		t.Fatalf("first: %+v", a)
	}
	if a := g.Take(t.Context(), one, lines(2, "A")); a.Verdict != gate.Shared {
		t.Fatalf("duplicate: %+v", a)
	}
	if a := g.Take(t.Context(), two, lines(2, "A")); a.Verdict != gate.Short || a.Short[0].Available != 1 || a.Short[0].Version != 7 {
		t.Fatalf("second: %+v", a)
	}
	if a := g.Take(t.Context(), two, lines(2, "A", "B")); a.Verdict != gate.UnknownItem || len(a.Unknown) != 1 || a.Unknown[0].Line != 1 {
		t.Fatalf("unknown: %+v", a)
	}
	g.Drop(one, lines(2, "A"))
	if a := g.Take(t.Context(), two, lines(2, "A")); a.Verdict != gate.Granted {
		t.Fatalf("after drop: %+v", a)
	}
}
