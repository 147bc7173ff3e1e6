package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// What must hold of a ledger at any time. Each query lists what breaks its rule.
var invariants = []struct{ name, query string }{
	{"figures in range", `
		SELECT sku FROM items WHERE on_hand < 0 OR held < 0 OR held > on_hand OR on_hand > 9007199254740991`},
	{"movements add up", `
		SELECT i.sku FROM items i LEFT JOIN movements m ON m.item_id = i.id
		GROUP BY i.id HAVING i.on_hand <> COALESCE(sum(m.delta_on_hand), 0) OR i.held <> COALESCE(sum(m.delta_held), 0)`},
	{"versions without gaps", `
		SELECT i.sku FROM items i LEFT JOIN movements m ON m.item_id = i.id
		GROUP BY i.id HAVING i.version <> count(m.version) + COALESCE(sum(m.version - 1) FILTER (WHERE m.kind = 'checkpoint'), 0)
			OR i.version <> COALESCE(max(m.version), 0)`},
	{"a checkpoint comes first", `
		SELECT m.item_id || ' ' || m.version FROM movements m
		WHERE m.kind = 'checkpoint' AND EXISTS (SELECT FROM movements e WHERE e.item_id = m.item_id AND e.version < m.version)`},
	{"movements follow one another", `
		SELECT item_id || ' ' || version FROM (
			SELECT item_id, version, on_hand, held,
				sum(delta_on_hand) OVER w AS on_hand_so_far, sum(delta_held) OVER w AS held_so_far
			FROM movements WINDOW w AS (PARTITION BY item_id ORDER BY version)
		) AS m WHERE on_hand <> on_hand_so_far OR held <> held_so_far`},
	{"held is what open holds hold", `
		SELECT i.sku FROM items i
		LEFT JOIN deduction_lines l ON l.item_id = i.id
		LEFT JOIN deductions d ON d.id = l.deduction_id AND d.state = 'held'
		GROUP BY i.id HAVING i.held <> COALESCE(sum(l.held) FILTER (WHERE d.id IS NOT NULL), 0)`},
	{"lines are as their deduction's state", `
		SELECT d.id::text FROM deductions d JOIN deduction_lines l ON l.deduction_id = d.id
		GROUP BY d.id HAVING NOT CASE d.state
			WHEN 'held' THEN sum(l.held) > 0
			WHEN 'committed' THEN sum(l.held) = 0 AND sum(l.committed) > sum(l.returned)
			WHEN 'returned' THEN sum(l.held) = 0 AND sum(l.committed) > 0 AND sum(l.committed) = sum(l.returned)
			ELSE sum(l.held) = 0 AND sum(l.committed) = 0 END`},
	{"lines are what movements say", `
		SELECT l.deduction_id::text FROM (
			SELECT deduction_id, item_id, sum(held) AS held, sum(committed) AS committed, sum(returned) AS returned
			FROM deduction_lines GROUP BY deduction_id, item_id
		) AS l JOIN deductions d ON d.id = l.deduction_id
		LEFT JOIN movements m ON m.deduction_id = l.deduction_id AND m.item_id = l.item_id
		WHERE NOT EXISTS (
			SELECT FROM movements c WHERE c.item_id = l.item_id AND c.kind = 'checkpoint' AND c.at >= d.created_at)
		GROUP BY l.deduction_id, l.item_id, l.held, l.committed, l.returned
		HAVING l.held <> COALESCE(sum(m.delta_held), 0)
			OR l.committed <> COALESCE(-sum(m.delta_on_hand) FILTER (WHERE m.kind IN ('deduct', 'commit')), 0)
			OR l.returned <> COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind = 'return'), 0)`},
	{"customers have what their deductions say", `
		SELECT COALESCE(u.customer, l.customer) FROM customer_units u
		FULL JOIN (
			SELECT l.item_id, d.client, d.customer, sum(l.held + l.committed - l.returned) AS units
			FROM deductions d JOIN deduction_lines l ON l.deduction_id = d.id
			WHERE d.customer IS NOT NULL GROUP BY l.item_id, d.client, d.customer
		) AS l ON l.item_id = u.item_id AND l.client = u.client AND l.customer = u.customer
		WHERE COALESCE(u.units, 0) <> COALESCE(l.units, 0)`},
	{"no movement without its line", `
		SELECT m.item_id || ' ' || m.version FROM movements m
		WHERE m.deduction_id IS NOT NULL AND NOT EXISTS (
			SELECT FROM deduction_lines l WHERE l.deduction_id = m.deduction_id AND l.item_id = m.item_id)`},
	{"one key a deduction", `
		SELECT d.id::text FROM deductions d
		LEFT JOIN operations o ON o.deduction_id = d.id AND o.kind = 'deduct' AND o.client = d.client
		GROUP BY d.id HAVING count(o.key) <> 1`},
	{"one key an adjustment", `
		SELECT m.item_id || ' ' || m.version FROM movements m
		LEFT JOIN operations o ON o.item_id = m.item_id AND o.version = m.version AND o.kind = 'adjust'
		WHERE m.kind IN ('receive', 'adjust', 'count')
		GROUP BY m.item_id, m.version HAVING count(o.key) <> 1`},
	{"one effect a key", `
		SELECT o.key FROM operations o
		LEFT JOIN deductions d ON d.id = o.deduction_id
		LEFT JOIN movements m ON m.item_id = o.item_id
			AND (m.version = o.version OR m.version > o.version AND m.kind = 'checkpoint')
		WHERE (d.id IS NOT NULL)::int + (m.version IS NOT NULL)::int <> (o.kind <> 'void')::int`},
	{"low stock is told when it begins", `
		SELECT COALESCE(m.item_id, e.item_id) || ' ' || COALESCE(m.version, e.version) FROM (
			SELECT m.item_id, m.version FROM (
				SELECT item_id, version, on_hand - held AS free, COALESCE(lag(on_hand - held) OVER w, 0) AS free_before,
					bool_or(kind IN ('configure', 'checkpoint')) OVER (PARTITION BY item_id) AS hidden
				FROM movements WINDOW w AS (PARTITION BY item_id ORDER BY version)
			) AS m JOIN items i ON i.id = m.item_id
			WHERE NOT m.hidden AND m.free - i.safety_stock <= i.low_stock_at AND m.free_before - i.safety_stock > i.low_stock_at
		) AS m FULL JOIN (
			SELECT e.item_id, e.version FROM events e
			WHERE NOT EXISTS (SELECT FROM movements m WHERE m.item_id = e.item_id AND m.kind IN ('configure', 'checkpoint'))
		) AS e ON e.item_id = m.item_id AND e.version = m.version
		WHERE m.item_id IS NULL OR e.item_id IS NULL`},
	{"one live deduction an order", `
		SELECT order_id FROM deductions WHERE state IN ('held', 'committed')
		GROUP BY client, order_id, part HAVING count(*) > 1`},
}

// violations lists each rule that does not hold, and a few examples.
func violations(ctx context.Context, tx pgx.Tx) ([]string, error) {
	var broken []string
	for _, rule := range invariants {
		rows, err := tx.Query(ctx, rule.query+" LIMIT 5")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.name, err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.name, err)
		}
		if len(found) > 0 {
			broken = append(broken, rule.name+": "+strings.Join(found, ", "))
		}
	}
	return broken, nil
}

// mustHold fails the test unless every rule holds, as of one moment.
func mustHold(t testing.TB, url string) {
	t.Helper()
	conn := connect(t, url)
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	broken, err := violations(t.Context(), tx)
	if err = errors.Join(err, tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

// connect to a database, past the ledger.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// execute runs SQL, as only tests do, and returns how many rows it was about.
func execute(t testing.TB, url, statement string, args ...any) int64 {
	t.Helper()
	tag, err := connect(t, url).Exec(t.Context(), statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return tag.RowsAffected()
}

// blockItem locks an item's row, so that batches on it wait, until the function it returns is called.
func blockItem(t testing.TB, url, sku string) (release func()) {
	t.Helper()
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM items WHERE sku = $1 FOR UPDATE", sku); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// waitForLock returns when a session of the database waits for a lock.
func waitForLock(t testing.TB, url string) {
	t.Helper()
	conn := connect(t, url)
	eventually(t, "a session waits for a lock", func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	const limit = 30 * time.Second
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// TestInvariantsAreChecked breaks a sound ledger in one place after the other.
func TestInvariantsAreChecked(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	someHistory(t, url)
	mustHold(t, url)
	conn := connect(t, url)
	const unchecked = `ALTER TABLE items DROP CONSTRAINT items_on_hand_not_negative, DROP CONSTRAINT items_held_not_negative,
		DROP CONSTRAINT items_held_within_on_hand, DROP CONSTRAINT items_on_hand_within_limit;
		ALTER TABLE deductions DROP CONSTRAINT deductions_held_expires; DROP INDEX deductions_live_key;`
	for _, c := range []struct{ rule, seed string }{
		{"figures in range", unchecked + `UPDATE items SET on_hand = -1 WHERE sku = 'A'`},
		{"figures in range", unchecked + `UPDATE items SET held = on_hand + 1 WHERE sku = 'A'`},
		{"figures in range", unchecked + `UPDATE items SET held = -1 WHERE sku = 'A'`},
		{"movements add up", `UPDATE items SET on_hand = on_hand + 1 WHERE sku = 'A'`},
		{"movements add up", `UPDATE items SET held = held + 1 WHERE sku = 'A'`},
		{"versions without gaps", `UPDATE items SET version = version + 1 WHERE sku = 'B'`},
		{"versions without gaps", `UPDATE movements SET version = 100 WHERE version = 1`},
		{"a checkpoint comes first", `UPDATE movements SET kind = 'checkpoint' WHERE version = 2`},
		{"movements follow one another", `UPDATE movements SET on_hand = on_hand + 1 WHERE version = 1`},
		{"movements follow one another", `UPDATE movements SET held = held + 1 WHERE version = 1`},
		{"held is what open holds hold", `UPDATE deduction_lines SET held = 0 WHERE held > 0`},
		{"held is what open holds hold", `UPDATE deductions SET state = 'released' WHERE state = 'held'`},
		{"lines are as their deduction's state", `UPDATE deductions SET state = 'returned' WHERE order_id = 'taken'`},
		{"lines are as their deduction's state", `UPDATE deductions SET state = 'held', expires_at = now() WHERE order_id = 'taken'`},
		{"lines are as their deduction's state", `UPDATE deductions SET state = 'committed' WHERE order_id = 'gone'`},
		{"lines are what movements say", `UPDATE deduction_lines SET quantity = 9, committed = committed + 1 WHERE committed > 0`},
		{"lines are what movements say", `UPDATE deduction_lines SET returned = 1 WHERE committed > 0`},
		{"lines are what movements say", `UPDATE movements SET deduction_id = NULL WHERE kind = 'hold'`},
		{"customers have what their deductions say", `UPDATE customer_units SET units = units + 1`},
		{"customers have what their deductions say", `DELETE FROM customer_units`},
		{"customers have what their deductions say", `UPDATE customer_units SET client = 'another'`},
		{"customers have what their deductions say", `UPDATE deductions SET customer = NULL`},
		{"no movement without its line", `UPDATE movements SET deduction_id = gen_random_uuid() WHERE kind = 'hold'`},
		{"one key a deduction", `DELETE FROM operations WHERE key = 'taken'`},
		{"one key a deduction", `INSERT INTO operations SELECT client, 'again', fingerprint, deduction_id, item_id, version, at, kind FROM operations WHERE key = 'taken'`},
		{"one key an adjustment", `DELETE FROM operations WHERE key = 'stock A'`},
		{"one effect a key", `UPDATE operations SET deduction_id = gen_random_uuid() WHERE key = 'taken'`},
		{"one effect a key", `UPDATE operations SET kind = 'void' WHERE key = 'taken'`},
		{"low stock is told when it begins", `DELETE FROM events`},
		{"low stock is told when it begins", `UPDATE items SET low_stock_at = 0 WHERE sku = 'A'`},
		{"low stock is told when it begins", `INSERT INTO events SELECT item_id, 1, on_hand, held, safety_stock, low_stock_at, tx, at, epoch, kind FROM events`},
		{"one live deduction an order", unchecked + `UPDATE deductions SET order_id = 'same' WHERE state IN ('held', 'committed')`},
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), c.seed); err != nil {
			t.Fatalf("%s: %v", c.seed, err)
		}
		broken, err := violations(t.Context(), tx)
		if err = errors.Join(err, tx.Rollback(t.Context())); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(broken, func(b string) bool { return strings.HasPrefix(b, c.rule+": ") }) {
			t.Errorf("%s\nis not found; found: %q", c.seed, broken)
		}
	}
}

// someHistory has a deduction in every state that stays for good.
func someHistory(t *testing.T, url string) {
	t.Helper()
	l := openAt(t, url)
	mark(t, l, "A", 4)
	stockUp(t, l, "A", 5)
	stockUp(t, l, "B", 5)
	taken := order("taken", "A", "B")
	taken.Customer = "ann"
	deduct(t, l, taken)
	held := order("held", "A")
	held.Hold = stock.MaxHold
	deduct(t, l, held)
	gone := order("gone", "B")
	gone.Hold = stock.MaxHold
	d := deduct(t, l, gone)
	if _, err := l.Release(t.Context(), &stock.ReleaseRequest{Client: "shop", ID: d.ID}); err != nil {
		t.Fatal(err)
	}
}
