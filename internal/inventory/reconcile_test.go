package inventory_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// round makes steps of the continuous check until they have been once around, and returns all findings.
func round(t *testing.T, s *inventory.Service) []stock.Finding {
	t.Helper()
	before, err := s.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []stock.Finding
	for range 1000 {
		v, err := s.Reconcile(t.Context())
		if err != nil || v.Gate != nil {
			t.Fatal(err, v.Gate)
		}
		all = append(all, v.Findings...)
		now, err := s.Invariants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now.Last.Ended.After(before.Last.Ended) {
			return all
		}
	}
	t.Fatal("the round does not end")
	return nil
}

func whole(t *testing.T, s *inventory.Service, repair bool) []stock.Finding {
	t.Helper()
	v, err := s.ReconcileAll(t.Context(), inventory.FullCheck{Repair: repair})
	if err != nil || v.Gate != nil {
		t.Fatal(err, v.Gate)
	}
	return v.Findings
}

// names of findings: rule and subject, each once, in order.
func names(findings []stock.Finding, rules ...stock.Rule) []string {
	var list []string
	for i := range findings {
		if len(rules) == 0 || slices.Contains(rules, findings[i].Rule) {
			list = append(list, string(findings[i].Rule)+": "+findings[i].Subject)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// history makes an item with a random history that ends with a taken deduction, an open hold, a released and a committed one.
func (w *world) history(t *testing.T, sku string, random *rand.Rand) {
	t.Helper()
	w.stockUp(t, sku, stock.Quantity(20+random.IntN(20)))
	for i := range 3 + random.IntN(6) {
		r := order(fmt.Sprintf("%s-%d", sku, i), sku)
		r.Lines[0].Quantity = stock.Quantity(1 + random.IntN(2))
		if random.IntN(2) == 0 {
			r.Hold = stock.MaxHold
		}
		out, err := w.direct.Deduct(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Hold > 0 && random.IntN(2) == 0 {
			_, err = w.direct.Commit(t.Context(), &stock.CommitRequest{Keyed: keyed(""), ID: out.Deduction.ID})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, hold := range map[string]bool{"taken": false, "held": true, "gone": true, "named": true} {
		r := order(sku+"-"+name, sku)
		r.Customer = "ann"
		if hold {
			r.Hold = stock.MaxHold
		}
		out, err := w.direct.Deduct(t.Context(), r)
		if err == nil && name == "gone" {
			_, err = w.direct.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: out.Deduction.ID})
		}
		if err == nil && name == "named" { // its quantities are named, without a key
			lines := []stock.LineQuantity{{No: 1, Quantity: 1}}
			_, err = w.direct.Commit(t.Context(), &stock.CommitRequest{Keyed: keyed(""), ID: out.Deduction.ID, Lines: lines})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Every kind of corruption of the ledger, on an item of its own, is found and named, and nothing else is; repairing does not
// touch it.
func TestCorruptionOfTheLedgerIsFound(t *testing.T) { //nolint:funlen // mostly a table
	t.Parallel()
	const of = ` WHERE item_id = (SELECT id FROM items WHERE sku = $1)`
	const first = ` WHERE version = 1 AND item_id = (SELECT id FROM items WHERE sku = $1)`
	deduction := func(set string) string {
		return `UPDATE deductions SET ` + set + ` WHERE order_id = $1 || '-held'`
	}
	seeds := []struct {
		sku, seed string
		rules     []stock.Rule
	}{
		{"whole", ``, nil},
		{"negative", `UPDATE items SET on_hand = -1 WHERE sku = $1`, []stock.Rule{stock.RuleFigures, stock.RuleSums}},
		{"overheld", `UPDATE items SET held = on_hand + 1 WHERE sku = $1`, []stock.Rule{stock.RuleFigures, stock.RuleSums, stock.RuleHolds}},
		{"more", `UPDATE items SET on_hand = on_hand + 1 WHERE sku = $1`, []stock.Rule{stock.RuleSums}},
		{"version", `UPDATE items SET version = version + 1 WHERE sku = $1`, []stock.Rule{stock.RuleVersions}},
		{"lost", `DELETE FROM movements` + first, []stock.Rule{stock.RuleSums, stock.RuleVersions, stock.RuleKeys}},
		{"moved", `UPDATE movements SET version = 100` + first, []stock.Rule{stock.RuleSums, stock.RuleVersions, stock.RuleKeys, stock.RuleKeyed}},
		{"after", `UPDATE movements SET on_hand = on_hand + 1` + first, []stock.Rule{stock.RuleSums}},
		{"heldafter", `UPDATE movements SET held = held + 1` + first, []stock.Rule{stock.RuleSums}},
		{"delta", `UPDATE movements SET delta_on_hand = delta_on_hand + 1` + first, []stock.Rule{stock.RuleSums}},
		{"kind", `UPDATE movements SET kind = 'return'` + of + ` AND kind = 'deduct'`, []stock.Rule{stock.RuleLines}},
		{"foreign", `UPDATE movements SET deduction_id = gen_random_uuid()` + of + ` AND kind = 'release'`, []stock.Rule{stock.RuleLines}},
		{"checkpoint", `UPDATE movements SET kind = 'checkpoint', delta_on_hand = on_hand, delta_held = held, deduction_id = NULL` + of + ` AND version = 2`,
			[]stock.Rule{stock.RuleVersions}},
		{"unheld", `UPDATE deduction_lines SET held = 0` + of + ` AND held > 0`, []stock.Rule{stock.RuleHolds, stock.RuleStates, stock.RuleLines, stock.RuleCustomers}},
		{"ended", deduction(`state = 'released'`), []stock.Rule{stock.RuleHolds, stock.RuleStates}},
		{"committed", `UPDATE deduction_lines SET quantity = 9, committed = committed + 1` + of + ` AND committed > 0`, []stock.Rule{stock.RuleLines, stock.RuleCustomers}},
		{"returned", `UPDATE deduction_lines SET returned = committed` + of + ` AND committed > 0`, []stock.Rule{stock.RuleLines, stock.RuleStates, stock.RuleCustomers}},
		{"noline", `DELETE FROM deduction_lines` + of + ` AND held > 0`, []stock.Rule{stock.RuleHolds, stock.RuleLines, stock.RuleCustomers}},
		{"counter", `UPDATE customer_units SET units = units + 1` + of, []stock.Rule{stock.RuleCustomers}},
		{"nocounter", `DELETE FROM customer_units` + of, []stock.Rule{stock.RuleCustomers}},
		{"nobodys", `INSERT INTO customer_units SELECT item_id, 1, client, 'bob' FROM customer_units` + of, []stock.Rule{stock.RuleCustomers}},
		{"another", `UPDATE deductions SET customer = 'bob' WHERE order_id = $1 || '-taken'`, []stock.Rule{stock.RuleCustomers}},
		{"nokey", `DELETE FROM operations WHERE key = $1 || '-taken'`, []stock.Rule{stock.RuleKeyed}},
		{"twokeys", `INSERT INTO operations SELECT client, $1 || '-twice', fingerprint, deduction_id, item_id, version, at, kind
			FROM operations WHERE key = $1 || '-taken'`, []stock.Rule{stock.RuleKeyed}},
		{"noeffect", `UPDATE operations SET deduction_id = gen_random_uuid() WHERE key = $1 || '-taken'`, []stock.Rule{stock.RuleKeys, stock.RuleKeyed}},
		{"void", `UPDATE operations SET kind = 'void' WHERE key = $1 || '-taken'`, []stock.Rule{stock.RuleKeys, stock.RuleKeyed}},
		{"nodeduction", `DELETE FROM deductions WHERE order_id = $1 || '-taken'`, []stock.Rule{stock.RuleKeys, stock.RuleCustomers}},
	}
	w := newWorld(t, sandbox.RedisAddr(t))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, c := range seeds {
		w.history(t, c.sku, random)
	}
	if _, err := w.direct.Void(t.Context(), keyed("given up")); err != nil {
		t.Fatal(err)
	}
	s := w.serve(t)
	if found := append(whole(t, s, true), round(t, s)...); len(found) > 0 {
		t.Fatalf("found in a sound ledger: %v", found)
	}
	conn := w.connect(t)
	if _, err := conn.Exec(t.Context(), `ALTER TABLE items DROP CONSTRAINT items_on_hand_not_negative, DROP CONSTRAINT items_held_within_on_hand;
		TRUNCATE checked_items`); err != nil {
		t.Fatal(err)
	}
	subjects := make(map[string]string) // of a finding, to its SKU
	rows, err := conn.Query(t.Context(), `
		SELECT 'deduction ' || id, split_part(order_id, '-', 1) FROM deductions
		UNION ALL SELECT 'key ' || key || ' of ' || client, split_part(split_part(replace(key, 'stock ', ''), '@', 1), '-', 1) FROM operations
		UNION ALL SELECT format('movement %s of item %s', m.version, i.id), i.sku FROM movements m JOIN items i ON i.id = m.item_id
		UNION ALL SELECT format('movement 100 of item %s', id), sku FROM items
		UNION ALL SELECT sku || '@' || location, sku FROM items`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var subject, sku string
		if err := rows.Scan(&subject, &sku); err != nil {
			t.Fatal(err)
		}
		subjects[subject] = sku
	}
	var want []string
	for _, c := range seeds {
		if c.seed == "" {
			continue
		}
		if tag, err := conn.Exec(t.Context(), c.seed, c.sku); err != nil || tag.RowsAffected() == 0 {
			t.Fatal(c.sku, tag, err)
		}
		for _, rule := range c.rules {
			want = append(want, string(rule)+" "+c.sku)
		}
	}
	slices.Sort(want)
	check := func(found []stock.Finding, rules []stock.Rule) {
		t.Helper()
		var got []string
		for _, f := range found {
			subject, _, _ := strings.Cut(f.Subject, " for customer ")
			sku := subjects[subject]
			if sku == "" && f.Rule == stock.RuleLines {
				sku = "foreign" // its deduction is not there
			}
			if got = append(got, string(f.Rule)+" "+sku); f.Repaired || len(f.Evidence) == 0 {
				t.Errorf("%+v", f)
			}
		}
		slices.Sort(got)
		expected := slices.DeleteFunc(slices.Clone(want), func(w string) bool {
			return !slices.ContainsFunc(rules, func(r stock.Rule) bool { return strings.HasPrefix(w, string(r)+" ") })
		})
		if diff := cmp.Diff(expected, slices.Compact(got)); diff != "" {
			t.Errorf("found (-want +got):\n%s", diff)
		}
	}
	all := slices.Concat(stock.ContinuousRules(), stock.FullRules())
	check(whole(t, s, true), all)
	check(whole(t, s, true), all) // the ledger is never repaired
	check(round(t, s), stock.ContinuousRules())
	told, err := s.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var recorded []stock.Finding
	for _, f := range told.Findings {
		recorded = append(recorded, f.Finding)
	}
	check(recorded, stock.ContinuousRules())
	if told.Hold() {
		t.Error("the verdict is that everything holds")
	}
}

// hash is the key of an item in the gate.
func (w *world) hash(t *testing.T, client *redis.Client, sku string) string {
	t.Helper()
	keys, err := client.Keys(t.Context(), strings.ReplaceAll(w.prefix, ":", "%3A")+":{g*}:"+sku+":default").Result()
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	return keys[0]
}

// Every kind of corruption of the gate is found and named, repaired once, and gone.
func TestCorruptionOfTheGateIsRepaired(t *testing.T) { //nolint:funlen // mostly a table
	t.Parallel()
	add := func(from, to int, n uint64) func(b []byte) []byte { // to a big-endian number in a field
		return func(b []byte) []byte {
			var wide [8]byte
			copy(wide[8-(to-from):], b[from:to])
			binary.BigEndian.PutUint64(wide[:], binary.BigEndian.Uint64(wide[:])+n)
			copy(b[from:to], wide[8-(to-from):])
			return b
		}
	}
	const minus = ^uint64(0)
	const hour = 3_600_000
	seeds := []struct {
		sku    string
		ticket bool // else the base
		change func([]byte) []byte
		rule   stock.Rule
	}{
		{"whole", false, nil, ""},
		{"wrongtype", false, nil, ""}, // see below
		{"epoch", false, add(0, 4, 1), stock.RuleGate},
		{"version", false, add(4, 12, 1), stock.RuleGate},
		{"oldversion", false, add(4, 12, minus), stock.RuleTickets}, // its ticket is from a newer one
		{"available", false, add(12, 20, 1), stock.RuleGate},
		{"lessavailable", false, add(12, 20, minus), stock.RuleGateLags},
		{"confirmed", false, add(20, 26, hour), stock.RuleGateLags},
		{"sum", false, add(26, 34, 1), stock.RuleTickets},
		{"count", false, add(34, 38, 1), stock.RuleTickets},
		{"earliest", false, add(38, 44, hour), stock.RuleTickets},
		{"noearliest", false, func(b []byte) []byte { clear(b[38:44]); return b }, stock.RuleTickets},
		{"short", false, func(b []byte) []byte { return b[:20] }, stock.RuleGateLags},
		{"gone", false, func([]byte) []byte { return nil }, stock.RuleGateLags},
		{"quantity", true, add(0, 6, 1), stock.RuleTickets},
		{"deadline", true, add(6, 12, ^uint64(hour)), stock.RuleTickets},
		{"ticketepoch", true, add(12, 16, 1), stock.RuleTickets},
		{"ticketversion", true, add(16, 24, minus), stock.RuleTickets},
		{"shortticket", true, func(b []byte) []byte { return b[:9] }, stock.RuleGateLags},
	}
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	client := redis.NewClient(&redis.Options{Addr: w.redis})
	defer client.Close()
	seedAll := func() (want []string) {
		for i, c := range seeds {
			item := stock.WantedLine{Item: at(c.sku), Quantity: 2}
			if a := w.eyes.Take(t.Context(), gate.TicketFor("shop", fmt.Sprint(i), ""), []stock.WantedLine{item}); a.Verdict != gate.Granted && a.Verdict != gate.Shared {
				t.Fatal(c.sku, a)
			}
		}
		for i, c := range seeds {
			if c.change == nil {
				continue
			}
			key, field := w.hash(t, client, c.sku), "b"
			if c.ticket {
				ticket := gate.TicketFor("shop", fmt.Sprint(i), "")
				field = string(ticket[:])
			}
			value, err := client.HGet(t.Context(), key, field).Bytes()
			if err != nil {
				t.Fatal(c.sku, err)
			}
			if value = c.change(value); value == nil {
				err = client.HDel(t.Context(), key, field).Err()
			} else {
				err = client.HSet(t.Context(), key, field, value).Err()
			}
			if err != nil {
				t.Fatal(c.sku, err)
			}
			want = append(want, string(c.rule)+": "+at(c.sku).String())
		}
		if err := client.Set(t.Context(), w.hash(t, client, "wrongtype"), "not a hash", 0).Err(); err != nil {
			t.Fatal(err)
		}
		want = append(want, string(stock.RuleGateLags)+": "+at("wrongtype").String())
		slices.Sort(want)
		return want
	}
	for _, c := range seeds {
		w.stockUp(t, c.sku, 10)
	}
	for name, check := range map[string]func() []stock.Finding{
		"full":       func() []stock.Finding { return whole(t, s, true) },
		"continuous": func() []stock.Finding { return round(t, s) },
	} {
		want := seedAll()
		if got := names(whole(t, s, false)); !slices.Equal(got, want) {
			t.Errorf("%s, without repair (-want +got):\n%s", name, cmp.Diff(want, got))
		}
		found := check()
		if diff := cmp.Diff(want, names(found)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, f := range found {
			if !f.Repaired {
				t.Errorf("not repaired: %+v", f)
			}
		}
		if again := check(); len(again) > 0 {
			t.Errorf("%s: a second run finds %v", name, again)
		}
	}
}

// A base that missed a commit is found, though not while news may be on their way.
func TestGateThatMissedNewsIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 10)
	deduct(t, s, order("1", "A"))
	eventually(t, "the gate has heard", 20*time.Second, func() bool {
		f, err := w.eyes.Peek(t.Context(), at("A"))
		return err == nil && f.Version == 2
	})
	w.receive(t, "A", "more", 5) // by a process that tells no gate
	if got, want := names(round(t, s)), []string{"gate-as-ledger: A@default"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if again := round(t, s); len(again) > 0 {
		t.Errorf("a second run finds %v", again)
	}
}

// While requests are on their way, ledger and gate are never in one state. None of that is drift.
func TestWorkUnderWayIsNoDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	for _, sku := range []string{"A", "B", "C"} {
		w.stockUp(t, sku, 60)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for client := range 8 {
		load.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for i := 0; ctx.Err() == nil; i++ {
				r := order(fmt.Sprintf("%d-%d", client, i), []string{"A", "B", "C"}[random.IntN(3)])
				r.Hold = stock.MaxHold
				out, err := s.Deduct(ctx, r)
				if err == nil && random.IntN(10) > 0 {
					_, _ = s.Release(ctx, &stock.ReleaseRequest{Client: "shop", ID: out.Deduction.ID}) // a cancelled one may fail
				}
			}
		})
	}
	for range 3 {
		if found := round(t, s); len(found) > 0 {
			t.Errorf("found %+v", found)
		}
	}
	if found := whole(t, s, false); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	stop()
	load.Wait()
}

// A check that goes on from the last one reads only what is new, and a long history in parts.
func TestCheckingIsIncremental(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 10)
	w.stockUp(t, "B", 10)
	moved := func() int64 {
		t.Helper()
		round(t, s)
		told, err := s.Invariants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return told.Last.Checked.Movements
	}
	if n := moved(); n != 2 {
		t.Errorf("%d movements at first, want 2", n)
	}
	if n := moved(); n != 0 {
		t.Errorf("%d movements of items that have not changed", n)
	}
	for i := range 3 {
		w.receive(t, "A", fmt.Sprint(i), 1)
	}
	if n := moved(); n != 3 {
		t.Errorf("%d movements since, want 3", n)
	}
	_, err := w.connect(t).Exec(t.Context(), `
		INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind)
		SELECT i.id, i.version + n, 1, 0, i.on_hand + n, 0, now(), 'receive' FROM items i, generate_series(1, 25000) n WHERE i.sku = 'B';
		UPDATE items SET version = version + 25000, on_hand = on_hand + 25000 WHERE sku = 'B'`)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for range 3 {
		n += moved()
	}
	if n != 25_000 {
		t.Errorf("%d movements of a long history, want 25000", n)
	}
}
