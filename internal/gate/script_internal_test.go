package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// model is what gate.lua should do, written for the reader. Time stands still in it: tickets are alive or dead.
type model map[stock.Item]*modelItem

type modelItem struct {
	epoch     uint32
	version   int64
	available stock.Quantity
	fresh     bool
	unwritten bool // an allowance that was only looked at is forgotten with the call
	tickets   map[Ticket]modelTicket
}

type modelTicket struct {
	quantity stock.Quantity
	epoch    uint32
	version  int64
	dead     bool
}

func (m model) sum(item stock.Item) stock.Quantity {
	it, sum := m[item], stock.Quantity(0)
	for _, held := range it.tickets {
		if held.epoch == it.epoch && held.version == it.version {
			sum += held.quantity
		}
	}
	return sum
}

// begin is what a call does to an item before it decides: news, drops, and what has run out goes.
func (m model) begin(item stock.Item, p *pending, now time.Time) {
	it := m[item]
	if p != nil && p.news {
		l, fresh := p.levels, now.Sub(p.at) < Freshness/2
		switch {
		case it == nil:
			it = &modelItem{tickets: make(map[Ticket]modelTicket), fresh: fresh}
			m[item] = it
			it.epoch, it.version, it.available = l.Epoch, l.Version, l.Available()
		case l.Epoch > it.epoch, l.Epoch == it.epoch && l.Version > it.version:
			it.epoch, it.version, it.available, it.fresh = l.Epoch, l.Version, l.Available(), fresh
		case l.Epoch == it.epoch && l.Version == it.version:
			it.available, it.fresh = l.Available(), it.fresh || fresh
		}
	}
	if it == nil {
		return
	}
	if p != nil {
		for _, t := range p.tickets {
			delete(it.tickets, t)
		}
	}
	maps.DeleteFunc(it.tickets, func(_ Ticket, held modelTicket) bool { return held.dead })
}

func (m model) decide(a *ask) letter {
	answer, choice, something := granted, false, false
	for i := range a.wants {
		w := &a.wants[i]
		it := m[w.item]
		if it != nil {
			if _, ok := it.tickets[a.ticket]; ok {
				return shared
			}
		}
		free := stock.Quantity(0)
		switch {
		case it != nil:
			free = it.available + w.room - m.sum(w.item)
		case w.room > 0:
			free = w.room
			m[w.item] = &modelItem{tickets: make(map[Ticket]modelTicket), unwritten: true}
		}
		if w.form == whole && free < w.quantity {
			answer = short
		}
		choice, something = choice || w.form != whole, something || w.form != whole && free > 0
	}
	if choice && !something {
		answer = short
	}
	if answer == granted {
		for i := range a.wants {
			m.grant(a, &a.wants[i])
		}
	}
	return answer
}

func (m model) grant(a *ask, w *want) {
	it, units := m[w.item], w.quantity
	switch {
	case w.form == look || it == nil:
		return
	case w.form == some:
		units = min(units, it.available-m.sum(w.item))
	}
	if units > 0 {
		it.unwritten = false
		it.tickets[a.ticket] = modelTicket{quantity: units, epoch: it.epoch, version: it.version}
	}
}

// call is one script call, run by Redis and by the model.
func (m model) call(t *testing.T, l *lane, b *batch) {
	t.Helper()
	b.encode()
	reply, err := l.execute(t.Context(), b)
	if err == nil {
		err = b.decode(reply)
	}
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range b.items {
		m.begin(b.items[i].item, b.items[i].pending, now)
	}
	var asks []*ask
	for i := range b.items {
		for a := b.items[i].first; a != nil; a = a.next {
			asks = append(asks, a)
		}
	}
	asks = append(asks, b.several...)
	for _, a := range asks {
		if want := m.decide(a); a.letter != want {
			t.Fatalf("%x wants %+v: got %c, want %c", a.ticket, a.wants, a.letter, want)
		}
	}
	for _, a := range asks {
		if a.letter != short {
			continue
		}
		isShort := false
		for i := range a.wants {
			w := &a.wants[i]
			var want figures
			if it := m[w.item]; it != nil {
				sum := m.sum(w.item)
				want = figures{known: true, fresh: it.fresh, bare: it.fresh && sum == 0, available: it.available - sum, version: it.version}
			}
			if diff := cmp.Diff(want, w.figures, cmp.AllowUnexported(figures{})); diff != "" {
				t.Fatalf("%+v: %s", w, diff)
			}
			isShort = isShort || w.short()
		}
		if !isShort {
			t.Fatalf("refused, but nothing is short: %+v", a.wants)
		}
	}
}

// same compares what Redis has with the model.
func (m model) same(t *testing.T, g *Gate, items []stock.Item) {
	t.Helper()
	for _, item := range items {
		f, err := g.Peek(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		it := m[item]
		if it == nil {
			if f.Known {
				t.Fatalf("%s: %+v", item, f)
			}
			continue
		}
		if f.Epoch != it.epoch || f.Version != it.version || f.Available != it.available || f.Outstanding != m.sum(item) || len(f.Tickets) != len(it.tickets) {
			t.Fatalf("%s: got %+v, want %+v", item, f, it)
		}
		for _, held := range f.Tickets {
			want := it.tickets[held.Ticket]
			if held.Quantity != want.quantity || held.Epoch != want.epoch || held.Version != want.version {
				t.Fatalf("%s: got %+v, want %+v", item, held, want)
			}
		}
	}
}

// kill lets some tickets run out, behind the back of the script.
func (m model) kill(t *testing.T, g *Gate, client *redis.Client, item stock.Item, r *rand.Rand) {
	t.Helper()
	it := m[item]
	if it == nil || len(it.tickets) == 0 {
		return
	}
	key := g.key(item)
	base, err := client.HGet(t.Context(), key, "b").Result()
	if err != nil {
		t.Fatal(err)
	}
	deadline := "\x00\x00\x00\x00\x00\x01" // long ago
	if r.IntN(2) == 0 {
		deadline = "\x7f\x00\x00\x00\x00\x00" // before the clock went back
	}
	fields := []string{"b", base[:38] + deadline}
	for ticket, held := range it.tickets {
		if r.IntN(2) == 0 {
			continue
		}
		text, err := client.HGet(t.Context(), key, string(ticket[:])).Result()
		if err != nil {
			t.Fatal(err)
		}
		held.dead = true
		it.tickets[ticket] = held
		fields = append(fields, string(ticket[:]), text[:6]+deadline+text[12:])
	}
	if len(fields) > 2 {
		if err := client.HSet(t.Context(), key, fields).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScriptDoesWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: sandbox.RedisAddr(t), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	for seed := range uint64(200) {
		g := &Gate{single: client, lanes: make([]*lane, 1)}
		g.cfg.Prefix, g.cfg.TicketLife = sandbox.Prefix(t), time.Minute
		g.cfg.setDefaults()
		g.lanes[0] = newLane(g, 0)
		g.lanes[0].later.Stop()
		testAgainstModel(t, g, client, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func testAgainstModel(t *testing.T, g *Gate, client *redis.Client, r *rand.Rand) {
	t.Helper()
	m, l, b := make(model), g.lanes[0], newBatch(g)
	var items []stock.Item
	for i := range 1 + r.IntN(4) {
		items = append(items, stock.Item{SKU: stock.SKU(fmt.Sprint("item ", i)), Location: "here"})
	}
	ticket := func() Ticket { return Ticket{byte(r.IntN(12))} }
	for range 15 {
		b.reset()
		for _, item := range items {
			if r.IntN(8) == 0 {
				m.kill(t, g, client, item, r)
			}
		}
		for range r.IntN(6) {
			a := newAsk()
			a.ticket = ticket()
			for _, i := range r.Perm(len(items))[:1+r.IntN(min(3, len(items)))] {
				w := want{item: items[i], quantity: stock.Quantity(1 + r.IntN(6))}
				if w.form = form(max(0, r.IntN(6)-3)); w.form == whole && r.IntN(3) == 0 {
					w.room = stock.Quantity(1 + r.IntN(8))
				}
				a.wants = append(a.wants, w)
			}
			b.add(a)
		}
		for _, item := range items {
			if r.IntN(3) == 0 {
				continue
			}
			p := &pending{}
			for range r.IntN(4) {
				p.tickets = append(p.tickets, ticket())
			}
			if r.IntN(3) > 0 {
				p.news, p.at = true, time.Now().Add(-time.Duration(r.IntN(2))*time.Hour)
				p.levels = stock.Levels{Item: item, OnHand: stock.Quantity(r.IntN(25)), SafetyStock: 5, Epoch: uint32(r.IntN(2)), Version: int64(r.IntN(20))}
			}
			b.items[b.key(item)].pending = p
		}
		if len(b.items) == 0 {
			continue
		}
		m.call(t, l, b)
		maps.DeleteFunc(m, func(_ stock.Item, it *modelItem) bool { return it.unwritten })
		m.same(t, g, items)
	}
}

// Numbers at their limits go to Redis and back unharmed.
func TestScriptKeepsLargeNumbers(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: sandbox.RedisAddr(t), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	g := &Gate{single: client, lanes: make([]*lane, 1)}
	g.cfg.Prefix, g.cfg.TicketLife = sandbox.Prefix(t), time.Minute
	g.cfg.setDefaults()
	g.lanes[0] = newLane(g, 0)
	g.lanes[0].later.Stop()
	m, b := make(model), newBatch(g)
	item := stock.Item{SKU: "A", Location: "here"}
	for _, c := range []struct {
		available stock.Quantity
		version   int64
		epoch     uint32
		quantity  stock.Quantity
	}{
		{1<<53 - 1, 1<<53 - 2, 1 << 31, 1_000_000_000_000},
		{-(1<<53 - 1), 1<<53 - 1, 1 << 31, 1},
		{0, 0, 1<<32 - 1, 1},
		{1, 1, 1<<32 - 1, 1},
	} {
		b.reset()
		a := newAsk()
		a.ticket, a.wants = Ticket{1}, []want{{item: item, quantity: c.quantity}}
		b.add(a)
		b.items[0].pending = &pending{news: true, at: time.Now(), tickets: []Ticket{{1}}, levels: stock.Levels{
			Item: item, OnHand: c.available, Version: c.version, Epoch: c.epoch,
		}}
		m.call(t, g.lanes[0], b)
		m.same(t, g, []stock.Item{item})
	}
}

func TestScriptRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: sandbox.RedisAddr(t), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	key := sandbox.Prefix(t) + "{x}"
	head := strings.Repeat("\x00\x00\x00\x00\x01\x00", 3) + "\x00\x00\x10\x00"
	ticket := strings.Repeat("t", 16)
	news, room := strings.Repeat("\x00", 26), strings.Repeat("\x00", 7)
	for name, args := range map[string][]any{
		"no arguments":          {},
		"a short head":          {head[1:], "", news, "", ""},
		"half an order":         {head, ticket[1:], news, "", ""},
		"too few arguments":     {head, "", news, ""},
		"too many arguments":    {head, "", news, "", "", ""},
		"an item it has not":    {head, ticket + "\x00\x01" + "\x00\x02" + "\x00\x00\x00\x00\x00\x01" + room, news, "", ""},
		"fewer lines than told": {head, ticket + "\x00\x02" + "\x00\x01" + "\x00\x00\x00\x00\x00\x01" + room, news, "", ""},
		"an unknown form":       {head, ticket + "\x00\x01" + "\x00\x01" + "\x00\x00\x00\x00\x00\x01" + room[:6] + "\x03", news, "", ""},
		"short news":            {head, "", news[1:], "", ""},
		"half a drop":           {head, "", news, ticket[1:], ""},
		"half a take":           {head, "", news, "", ticket + "\x00"},
	} {
		err := client.Eval(t.Context(), script, []string{key}, args...).Err()
		if !redis.HasErrorPrefix(err, "BADARG") {
			t.Errorf("%s: %v", name, err)
		}
		if n := client.Exists(context.Background(), key).Val(); n != 0 {
			t.Errorf("%s: something was written", name)
		}
	}
}

func TestRepliesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	b := newBatch(nil)
	b.reset()
	a := newAsk()
	a.wants = []want{{item: stock.Item{SKU: "A"}, quantity: 1}}
	b.add(a)
	for _, reply := range []string{"", "GG", "X", "R 2:1:1:1", "R 0:1:1:1", "R x", "R 1:y:1:1", "R 1:1:z:1", "R 1:1", "G  "} {
		if err := b.decode(reply); !errors.Is(err, errBadReply) {
			t.Errorf("%q: %v", reply, err)
		}
	}
	for _, reply := range []string{"G", "S", "C", "R 1", "R 1:-5:3:0"} {
		if err := b.decode(reply); err != nil {
			t.Errorf("%q: %v", reply, err)
		}
	}
	if diff := cmp.Diff(figures{known: true, available: -5, version: 3}, a.wants[0].figures, cmp.AllowUnexported(figures{})); diff != "" {
		t.Error(diff)
	}
}

// The kinds of failure decide whether news are kept.
func TestKindsOfFailure(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]failure{
		"LOADING Redis is loading the dataset in memory": unready, "READONLY You can't write": unready,
		"MOVED 1 127.0.0.1:1": unready, "OOM command not allowed": unready, "BUSY Redis is busy": unready,
		"ERR something": refused, "BADARG": refused,
	} {
		if got := failureOf(reply(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	others := map[error]failure{context.DeadlineExceeded: timedOut, errors.New("EOF"): cut, fmt.Errorf("%w: x", errBadReply): refused}
	for _, err := range slices.Collect(maps.Keys(others)) {
		if got := failureOf(err); got != others[err] {
			t.Errorf("%v: %s, want %s", err, got, others[err])
		}
	}
}

// reply is an error that Redis answered.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}
