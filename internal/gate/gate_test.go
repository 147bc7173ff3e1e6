package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

// shelf is what the ledger would say of some items.
type shelf struct {
	mu     sync.Mutex
	levels map[stock.Item]stock.Levels
	reads  int           // calls of confirm
	err    error         // what confirm answers
	block  chan struct{} // unless nil, confirm waits for it after it has looked
}

func newShelf() *shelf { return &shelf{levels: make(map[stock.Item]stock.Levels)} }

func (s *shelf) put(sku string, version int64, onHand stock.Quantity) stock.Levels {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := stock.Levels{Item: item(sku), OnHand: onHand, Version: version, Epoch: 1}
	s.levels[l.Item] = l
	return l
}

func (s *shelf) confirm(ctx context.Context, items []stock.Item) ([]stock.Levels, error) {
	s.mu.Lock()
	s.reads++
	block, err := s.block, s.err
	var found []stock.Levels
	for _, item := range items {
		if l, ok := s.levels[item]; ok {
			found = append(found, l)
		}
	}
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return found, err
}

func (s *shelf) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func item(sku string) stock.Item {
	return stock.Item{SKU: stock.SKU(sku), Location: stock.DefaultLocation}
}

// lines are one line of the same quantity for each SKU.
func lines(quantity stock.Quantity, skus ...string) []stock.WantedLine {
	var l []stock.WantedLine
	for _, sku := range skus {
		l = append(l, stock.WantedLine{Item: item(sku), Quantity: quantity})
	}
	return l
}

func order(n int) gate.Ticket { return gate.TicketFor("client", strconv.Itoa(n), "") }

func dial(t testing.TB, address string) redis.UniversalClient {
	t.Helper()
	client, err := gate.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// shared is a client of the Redis that all tests share.
func shared(t testing.TB) redis.UniversalClient {
	t.Helper()
	return dial(t, "redis://"+sandbox.RedisAddr(t))
}

// open makes a gate that asks Redis about every request and waits for it as long as a busy machine may take, unless
// cfg says otherwise.
func open(t testing.TB, client redis.UniversalClient, s *shelf, cfg gate.Config) *gate.Gate {
	t.Helper()
	cfg.Confirm = s.confirm
	if cfg.Prefix == "" {
		cfg.Prefix = sandbox.Prefix(t)
	}
	if cfg.Ample == 0 {
		cfg.Ample = -1
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = patience
	}
	g := gate.New(client, cfg)
	t.Cleanup(g.Close)
	return g
}

func expect(t testing.TB, got gate.Answer, want gate.Verdict) {
	t.Helper()
	if got.Verdict != want {
		t.Fatalf("got %s (%s) %+v, want %s", got.Verdict, got.Reason, got, want)
	}
}

const (
	patience = 20 * time.Second // for what must happen
	// slack is what a busy machine may add to a time that has a bound. It is not what the bound is about: without one
	// a test would wait until its patience ends.
	slack = 5 * time.Second
)

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func peek(t testing.TB, g *gate.Gate, sku string) gate.Figures {
	t.Helper()
	f, err := g.Peek(context.Background(), item(sku))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTakeLoadsGrantsSharesAndRefuses(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 7, 3)
	g := open(t, shared(t), s, gate.Config{TicketLife: time.Minute})
	expect(t, g.Take(t.Context(), order(1), lines(2, "A")), gate.Granted)
	expect(t, g.Take(t.Context(), order(1), lines(2, "A")), gate.Shared)
	got := g.Take(t.Context(), order(2), lines(2, "A"))
	want := gate.Answer{Verdict: gate.Short, Short: []stock.ShortLine{{Item: item("A"), Requested: 2, Available: 1, Version: 7}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	f := peek(t, g, "A")
	if !f.Known || f.Epoch != 1 || f.Version != 7 || f.Available != 3 || f.Outstanding != 2 || len(f.Tickets) != 1 ||
		f.Tickets[0].Ticket != order(1) || f.Tickets[0].Quantity != 2 || f.Tickets[0].Version != 7 {
		t.Fatalf("%+v", f)
	}
	if life := f.Tickets[0].Deadline.Sub(f.ConfirmedAt); life < 50*time.Second || life > 70*time.Second {
		t.Fatalf("the ticket lives %v after the base was confirmed", life)
	}
	g.Drop(gate.Wish{Ticket: order(1), Lines: lines(2, "A")})
	eventually(t, "the ticket goes", func() bool { return len(peek(t, g, "A").Tickets) == 0 })
	expect(t, g.Take(t.Context(), order(2), lines(2, "A")), gate.Granted)
	if s.looks() != 1 {
		t.Fatalf("the ledger was asked %d times", s.looks())
	}
}

func TestManyTakersNeverHoldMoreThanThereIs(t *testing.T) {
	t.Parallel()
	const takers, units = 1000, 20
	s := newShelf()
	s.put("hot", 1, units)
	prefix := sandbox.Prefix(t)
	cfg := gate.Config{Prefix: prefix, TicketLife: time.Minute}
	processes := []*gate.Gate{open(t, shared(t), s, cfg), open(t, shared(t), s, cfg)}
	var granted, short atomic.Int64
	var group sync.WaitGroup
	for n := range takers {
		group.Go(func() {
			switch a := processes[n%2].Take(t.Context(), order(n), lines(1, "hot")); a.Verdict {
			case gate.Granted:
				granted.Add(1)
			case gate.Short:
				short.Add(1)
			default:
				t.Errorf("%+v", a)
			}
		})
	}
	group.Wait()
	f := peek(t, processes[0], "hot")
	if granted.Load() != units || short.Load() != takers-units || f.Outstanding != units || len(f.Tickets) != units {
		t.Fatalf("%d granted, %d short, %d units outstanding on %d tickets", granted.Load(), short.Load(), f.Outstanding, len(f.Tickets))
	}
}

func TestDuplicatesShareOneTicket(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 100)
	s.put("B", 1, 100)
	cfg := gate.Config{Prefix: sandbox.Prefix(t), TicketLife: time.Minute}
	processes := []*gate.Gate{open(t, shared(t), s, cfg), open(t, shared(t), s, cfg)}
	for _, skus := range [][]string{{"A"}, {"A", "B"}} {
		ticket := gate.TicketFor("client", fmt.Sprint(skus), "")
		var granted atomic.Int64
		var group sync.WaitGroup
		for n := range 200 {
			group.Go(func() {
				switch a := processes[n%2].Take(t.Context(), ticket, lines(3, skus...)); a.Verdict {
				case gate.Granted:
					granted.Add(1)
				case gate.Shared:
				default:
					t.Errorf("%+v", a)
				}
			})
		}
		group.Wait()
		if granted.Load() != 1 {
			t.Fatalf("%v: %d granted", skus, granted.Load())
		}
	}
	if a, b := peek(t, processes[0], "A"), peek(t, processes[0], "B"); a.Outstanding != 6 || b.Outstanding != 3 {
		t.Fatalf("outstanding %d and %d", a.Outstanding, b.Outstanding)
	}
}

func TestAllLinesOrNone(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 10)
	s.put("B", 2, 1)
	s.put("C", 3, 4)
	g := open(t, shared(t), s, gate.Config{TicketLife: time.Minute})
	wanted := append(lines(2, "A", "B", "C"), lines(3, "C")...)
	got := g.Take(t.Context(), order(1), wanted)
	want := gate.Answer{Verdict: gate.Short, Short: []stock.ShortLine{
		{Line: 1, Item: item("B"), Requested: 2, Available: 1, Version: 2},
		{Line: 2, Item: item("C"), Requested: 5, Available: 4, Version: 3},
		{Line: 3, Item: item("C"), Requested: 5, Available: 4, Version: 3},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	for _, sku := range []string{"A", "B", "C"} {
		if f := peek(t, g, sku); f.Outstanding != 0 || len(f.Tickets) != 0 {
			t.Fatalf("%s: %+v", sku, f)
		}
	}
	got = g.Take(t.Context(), order(1), append(wanted, lines(1, "X", "A", "Y")...))
	want = gate.Answer{Verdict: gate.UnknownItem, Unknown: []stock.UnknownLine{{Line: 4, Item: item("X")}, {Line: 6, Item: item("Y")}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	expect(t, g.Take(t.Context(), order(1), lines(4, "A", "C")), gate.Granted)
	if a, c := peek(t, g, "A"), peek(t, g, "C"); a.Outstanding != 4 || c.Outstanding != 4 {
		t.Fatalf("outstanding %d and %d", a.Outstanding, c.Outstanding)
	}
}

func TestAThousandLines(t *testing.T) {
	t.Parallel()
	s := newShelf()
	var skus []string
	for n := range stock.MaxLines {
		skus = append(skus, "SKU-"+strconv.Itoa(n))
		s.put(skus[n], 1, 1)
	}
	g := open(t, shared(t), s, gate.Config{TicketLife: time.Minute})
	expect(t, g.Take(t.Context(), order(1), lines(1, skus...)), gate.Granted)
	a := g.Take(t.Context(), order(2), lines(1, skus...))
	expect(t, a, gate.Short)
	if len(a.Short) != len(skus) {
		t.Fatalf("%d short lines", len(a.Short))
	}
	g.Drop(gate.Wish{Ticket: order(1), Lines: lines(1, skus...)})
	expect(t, g.Take(t.Context(), order(2), lines(1, skus...)), gate.Granted)
	if a := g.Take(t.Context(), order(3), lines(1, append(skus, "one more")...)); a.Reason != gate.Invalid {
		t.Fatalf("%+v", a)
	}
}

func TestNothingToDecide(t *testing.T) {
	t.Parallel()
	g := open(t, shared(t), newShelf(), gate.Config{Ample: 1})
	for _, wanted := range [][]stock.WantedLine{nil, lines(0, "A"), lines(-1, "A"), lines(stock.MaxLineQuantity+1, "A"), append(lines(1, "A"), lines(0, "A")...)} {
		if a := g.Take(t.Context(), order(1), wanted); a.Verdict != gate.Bypassed || a.Reason != gate.Invalid {
			t.Errorf("%v: %+v", wanted, a)
		}
	}
}

// A ticket may be part of the base that comes after it: it must not be counted twice.
func TestATicketCountsOnlyAgainstItsBase(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 20)
	prefix := sandbox.Prefix(t)
	one := open(t, shared(t), s, gate.Config{Prefix: prefix, TicketLife: time.Minute})
	two := open(t, shared(t), s, gate.Config{Prefix: prefix, TicketLife: time.Minute})
	expect(t, one.Take(t.Context(), order(1), lines(12, "A")), gate.Granted)
	expect(t, two.Take(t.Context(), order(2), lines(10, "A")), gate.Short)
	// The ledger committed order 1; another process hears of it first.
	two.Settle([]stock.Levels{s.put("A", 2, 8)})
	expect(t, two.Take(t.Context(), order(3), lines(8, "A")), gate.Granted)
	if f := peek(t, one, "A"); f.Outstanding != 8 || len(f.Tickets) != 2 {
		t.Fatalf("%+v", f)
	}
	expect(t, two.Take(t.Context(), order(1), lines(12, "A")), gate.Shared)
	one.Drop(gate.Wish{Ticket: order(1), Lines: lines(12, "A")})
	eventually(t, "the ticket goes", func() bool { return len(peek(t, one, "A").Tickets) == 1 })
	if f := peek(t, one, "A"); f.Outstanding != 8 {
		t.Fatalf("dropping a ticket that did not count changed the sum: %+v", f)
	}
}

func TestNewsAreTakenByEpochAndVersion(t *testing.T) {
	t.Parallel()
	s := newShelf()
	cfg := gate.Config{Prefix: sandbox.Prefix(t)}
	reader := open(t, shared(t), s, cfg)
	told := func(epoch uint32, version int64, onHand stock.Quantity) gate.Figures {
		// Each by a process of its own, so that they meet in Redis only; its end sends them.
		process := gate.New(shared(t), gate.Config{Prefix: cfg.Prefix, Confirm: s.confirm})
		process.Settle([]stock.Levels{{Item: item("A"), OnHand: onHand, SafetyStock: 5, Version: version, Epoch: epoch}})
		process.Close()
		return peek(t, reader, "A")
	}
	steps := []struct {
		epoch         uint32
		version       int64
		onHand        stock.Quantity
		wantEpoch     uint32
		wantVersion   int64
		wantAvailable stock.Quantity
	}{
		{1, 5, 10, 1, 5, 5},
		{1, 4, 99, 1, 5, 5}, // late
		{1, 5, 10, 1, 5, 5}, // again
		{1, 9, 2, 1, 9, -3}, // some were lost; less than the safety stock
		{2, 7, 30, 2, 7, 25},
		{1, 11, 99, 2, 7, 25}, // from the ledger that was replaced
		{2, 8, stock.MaxOnHand, 2, 8, stock.MaxOnHand - 5},
		{2, 1 << 53, 1, 2, 8, stock.MaxOnHand - 5}, // no number that Lua can tell from the next
	}
	for i, step := range steps {
		f := told(step.epoch, step.version, step.onHand)
		if f.Epoch != step.wantEpoch || f.Version != step.wantVersion || f.Available != step.wantAvailable {
			t.Fatalf("step %d: %+v", i, f)
		}
	}
}

func TestNewsOfOneProcessAreItsOwnNextAnswer(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 0)
	g := open(t, shared(t), s, gate.Config{})
	for version := int64(2); version < 200; version += 2 {
		expect(t, g.Take(t.Context(), order(1), lines(1, "A")), gate.Short)
		g.Settle([]stock.Levels{s.put("A", version, 1)})
		expect(t, g.Take(t.Context(), order(1), lines(1, "A")), gate.Granted)
		g.Settle([]stock.Levels{s.put("A", version+1, 0)})
		g.Drop(gate.Wish{Ticket: order(1), Lines: lines(1, "A")})
	}
	if s.looks() > 2 {
		t.Fatalf("the ledger was asked %d times within a second", s.looks())
	}
}

func TestPlentyNeedsNoTicketAndSoldOutNoCall(t *testing.T) {
	t.Parallel()
	s := newShelf()
	g := open(t, shared(t), s, gate.Config{Ample: 100, TicketLife: time.Minute})
	g.Settle([]stock.Levels{s.put("A", 1, 1000), s.put("B", 1, 1000)})
	expect(t, g.Take(t.Context(), order(1), lines(10, "A", "B")), gate.Ample)
	expect(t, g.Take(t.Context(), order(1), lines(11, "A")), gate.Granted)
	expect(t, g.Take(t.Context(), order(2), append(lines(1, "A"), lines(11, "B")...)), gate.Granted)
	if f := peek(t, g, "A"); f.Outstanding != 12 {
		t.Fatalf("%+v", f)
	}
	g.Settle([]stock.Levels{s.put("A", 2, 999)})
	expect(t, g.Take(t.Context(), order(3), lines(10, "A")), gate.Granted)
}

func TestStaleShortIsConfirmedOnceForAll(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 0)
	g := open(t, shared(t), s, gate.Config{})
	began := time.Now()
	all := func(want gate.Verdict) {
		var group sync.WaitGroup
		for n := range 300 {
			group.Go(func() {
				if a := g.Take(t.Context(), order(n), lines(1, "A")); a.Verdict != want {
					t.Errorf("%+v", a)
				}
			})
		}
		group.Wait()
	}
	all(gate.Short)
	if time.Since(began) < gate.Freshness && s.looks() != 1 {
		t.Fatalf("%d looks for an unknown item", s.looks())
	}
	first := s.looks()
	old := peek(t, g, "A").ConfirmedAt
	eventually(t, "the base grows old", func() bool { return now(t, shared(t)).Sub(old) > gate.Freshness })
	all(gate.Short)
	if s.looks() != first+1 {
		t.Fatalf("%d looks for a base that grew old", s.looks()-first)
	}
	if f := peek(t, g, "A"); !f.ConfirmedAt.After(old) {
		t.Fatalf("%+v", f)
	}
}

// now is Redis's clock.
func now(t testing.TB, client redis.UniversalClient) time.Time {
	t.Helper()
	at, err := client.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A look that was on its way before an item was made must not deny it.
func TestAnItemJustMadeIsKnown(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.block = make(chan struct{})
	g := open(t, shared(t), s, gate.Config{})
	before, after := make(chan gate.Answer, 1), make(chan gate.Answer, 1)
	go func() { before <- g.Take(t.Context(), order(1), lines(1, "A")) }()
	eventually(t, "the ledger is asked", func() bool { return s.looks() == 1 })
	s.put("A", 1, 1)
	go func() { after <- g.Take(t.Context(), order(2), lines(1, "A")) }()
	close(s.block)
	expect(t, <-before, gate.UnknownItem)
	expect(t, <-after, gate.Granted)
}

func TestTheLedgerOutOfReach(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.err = errors.New("out of reach")
	g := open(t, shared(t), s, gate.Config{ConfirmTimeout: 50 * time.Millisecond})
	if a := g.Take(t.Context(), order(1), lines(1, "A")); a.Verdict != gate.Bypassed || a.Reason != gate.NotConfirmed {
		t.Fatalf("%+v", a)
	}
	s.mu.Lock()
	s.err, s.block = nil, make(chan struct{})
	s.mu.Unlock()
	if a := g.Take(t.Context(), order(1), lines(1, "A")); a.Verdict != gate.Bypassed || a.Reason != gate.NotConfirmed {
		t.Fatalf("it never answers: %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := g.Take(ctx, order(1), lines(1, "A")); a.Verdict != gate.Bypassed || a.Reason != gate.Cancelled {
		t.Fatalf("the caller gave up: %+v", a)
	}
}

// A base that the ledger's own answer cannot replace must not refuse anybody.
func TestABaseAheadOfTheLedgerRefusesNobodyForLong(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 5, 10)
	g := open(t, shared(t), s, gate.Config{})
	g.Settle([]stock.Levels{{Item: item("A"), Version: 50, Epoch: 1}})
	expect(t, g.Take(t.Context(), order(1), lines(1, "A")), gate.Short)
	began := time.Now()
	var a gate.Answer
	eventually(t, "it is not believed any more", func() bool {
		a = g.Take(t.Context(), order(1), lines(1, "A"))
		return a.Verdict != gate.Short
	})
	if a.Verdict != gate.Bypassed || a.Reason != gate.Unsettled || time.Since(began) > gate.Freshness+slack {
		t.Fatalf("after %v: %+v", time.Since(began), a)
	}
	if err := g.Forget(t.Context(), item("A")); err != nil {
		t.Fatal(err)
	}
	expect(t, g.Take(t.Context(), order(1), lines(1, "A")), gate.Granted)
}

func TestTicketsRunOut(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.put("A", 1, 10)
	g := open(t, shared(t), s, gate.Config{TicketLife: 300 * time.Millisecond})
	began := time.Now()
	expect(t, g.Take(t.Context(), order(1), lines(7, "A")), gate.Granted)
	expect(t, g.Take(t.Context(), order(2), lines(3, "A")), gate.Granted)
	if a := g.Take(t.Context(), order(3), lines(1, "A")); a.Verdict == gate.Granted && time.Since(began) < 300*time.Millisecond {
		t.Fatalf("%+v", a)
	}
	eventually(t, "all units are free", func() bool {
		return g.Take(t.Context(), order(4), lines(10, "A")).Verdict == gate.Granted
	})
	if f := peek(t, g, "A"); f.Outstanding != 10 || len(f.Tickets) != 1 {
		t.Fatalf("%+v", f)
	}
}

func TestAnItemHasABoundedNumberOfTickets(t *testing.T) {
	t.Parallel()
	const limit = 4096
	s := newShelf()
	s.put("A", 1, 10*limit)
	s.put("B", 1, 10*limit)
	g := open(t, shared(t), s, gate.Config{TicketLife: time.Minute})
	var group sync.WaitGroup
	for n := range limit {
		group.Go(func() {
			if a := g.Take(t.Context(), order(n), lines(1, "A")); a.Verdict != gate.Granted {
				t.Errorf("%+v", a)
			}
		})
	}
	group.Wait()
	for _, skus := range [][]string{{"A"}, {"B", "A"}} {
		if a := g.Take(t.Context(), order(limit), lines(1, skus...)); a.Verdict != gate.Bypassed || a.Reason != gate.Crowded {
			t.Fatalf("%v: %+v", skus, a)
		}
	}
	for n := range limit {
		g.Drop(gate.Wish{Ticket: order(n), Lines: lines(1, "A")})
	}
	eventually(t, "they go", func() bool { return len(peek(t, g, "A").Tickets) == 0 })
	expect(t, g.Take(t.Context(), order(limit), lines(1, "B", "A")), gate.Granted)
}

func TestWhatIsNoItemIsReplaced(t *testing.T) {
	t.Parallel()
	client := shared(t)
	for name, spoil := range map[string]func(ctx context.Context, key string) error{
		"another type": func(ctx context.Context, key string) error { return client.Set(ctx, key, "x", 0).Err() },
		"no base":      func(ctx context.Context, key string) error { return client.HDel(ctx, key, "b").Err() },
		"a short base": func(ctx context.Context, key string) error { return client.HSet(ctx, key, "b", "1:2:3").Err() },
	} {
		s := newShelf()
		s.put("A", 3, 5)
		prefix := sandbox.Prefix(t)
		g := open(t, client, s, gate.Config{Prefix: prefix, TicketLife: time.Minute})
		expect(t, g.Take(t.Context(), order(1), lines(5, "A")), gate.Granted)
		keys, err := client.Keys(t.Context(), url.QueryEscape(prefix)+"*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatal(keys, err)
		}
		if life := client.TTL(t.Context(), keys[0]).Val(); life < 59*time.Minute || life > time.Hour {
			t.Fatalf("the key lives %v", life)
		}
		if err := errors.Join(client.Del(t.Context(), keys[0]).Err(), client.HSet(t.Context(), keys[0], "c", "").Err(), spoil(t.Context(), keys[0])); err != nil {
			t.Fatal(name, err)
		}
		expect(t, g.Take(t.Context(), order(2), lines(5, "A")), gate.Granted)
		if f := peek(t, g, "A"); f.Available != 5 || f.Outstanding != 5 || len(f.Tickets) != 1 {
			t.Fatalf("%s: %+v", name, f)
		}
	}
}

func TestCloseTellsWhatWaitsAndBypassesTheRest(t *testing.T) {
	t.Parallel()
	s := newShelf()
	prefix := sandbox.Prefix(t)
	g := open(t, shared(t), s, gate.Config{Prefix: prefix})
	var levels []stock.Levels
	for n := range 1000 {
		levels = append(levels, s.put("SKU-"+strconv.Itoa(n), 3, 2))
	}
	g.Settle(levels)
	g.Close()
	g.Close()
	if a := g.Take(t.Context(), order(1), lines(1, "SKU-1")); a.Verdict != gate.Bypassed || a.Reason != gate.Closed {
		t.Fatalf("%+v", a)
	}
	g.Settle(levels)
	g.Drop(gate.Wish{Ticket: order(1), Lines: lines(1, "SKU-1")})
	other := open(t, shared(t), s, gate.Config{Prefix: prefix})
	for n := range levels {
		if f := peek(t, other, "SKU-"+strconv.Itoa(n)); !f.Known || f.Version != 3 {
			t.Fatalf("%d: %+v", n, f)
		}
	}
}

func TestTicketsOfDifferentPartsDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[gate.Ticket][3]string)
	texts := []string{"", "a", "b", "ab", "a\x01", "\x01a", "ä"}
	for _, client := range texts {
		for _, orderID := range texts {
			for _, part := range texts {
				ticket, parts := gate.TicketFor(client, orderID, part), [3]string{client, orderID, part}
				if other, ok := seen[ticket]; ok {
					t.Fatalf("%q and %q", other, parts)
				}
				seen[ticket] = parts
				if gate.TicketFor(client, orderID, part) != ticket {
					t.Fatalf("%q has two tickets", parts)
				}
			}
		}
	}
}

// hostile SKUs: each is an item of its own, and none may form, end or break a hash tag.
func hostile() []string {
	return []string{
		"CLE-056621/6", "%2F", "/", "a b", "..", "ä", "{x}", "{}", "}{", "{", "}", "{g0}", "x}:{g1}", "🛒", "BANK CHARGES",
		"M", "m", "01234", "1234", "a:b", "a", "%", "%25", "*", "b", "\\x00", "'\"",
	}
}

func TestHostileSKUsAreDistinctItems(t *testing.T) {
	t.Parallel()
	s := newShelf()
	testHostileSKUs(t, s, open(t, shared(t), s, gate.Config{TicketLife: time.Minute}))
}

func testHostileSKUs(t *testing.T, s *shelf, g *gate.Gate) {
	t.Helper()
	for i, sku := range hostile() {
		s.put(sku, int64(i)+1, stock.Quantity(i)+1)
	}
	expect(t, g.Take(t.Context(), order(1), lines(1, hostile()...)), gate.Granted)
	for i, sku := range hostile() {
		if f := peek(t, g, sku); f.Version != int64(i)+1 || f.Available != stock.Quantity(i)+1 || f.Outstanding != 1 {
			t.Fatalf("%q: %+v", sku, f)
		}
	}
	a := g.Take(t.Context(), order(2), lines(stock.Quantity(len(hostile())), hostile()...))
	expect(t, a, gate.Short)
	if len(a.Short) != len(hostile()) {
		t.Fatalf("%d of %d are short", len(a.Short), len(hostile()))
	}
}
