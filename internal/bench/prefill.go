package bench

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

const (
	million = 1_000_000
	// prefillItems share the deductions of a prefill evenly; a million is a whole number for each.
	prefillItems = 10_000
)

// Prefill makes a ledger that has been in use for a while: it writes millions of deductions of one unit, of items of their own,
// straight into the tables, and every index, stock and version is as if they had been made one by one. What
// an earlier call has written counts.
func (s *Stack) Prefill(ctx context.Context, millions int, progress io.Writer) error {
	if millions == 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.DatabaseURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	items := NewWorkload(Shape{Items: prefillItems, Stock: Plenty})
	for i := range items.SKUs {
		items.SKUs[i] = fmt.Sprintf("prefill-%05d", i)
	}
	var exist bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM items WHERE sku = $1)", items.SKUs[0]).Scan(&exist); err != nil {
		return err
	}
	if !exist {
		if err := items.Insert(ctx, s.DatabaseURL()); err != nil {
			return err
		}
	}
	var written int64
	if err := conn.QueryRow(ctx, "SELECT COALESCE(sum(version - 1), 0)::bigint FROM items WHERE sku LIKE 'prefill-%'").Scan(&written); err != nil {
		return err
	}
	if written >= int64(millions)*million {
		return nil
	}
	for done := written / million; done < int64(millions); done++ {
		fmt.Fprintf(progress, "prefill: %d of %d million deductions\n", done, millions)
		if _, err := conn.Exec(ctx, prefillStatement, done, prefillItems, client); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
	}
	fmt.Fprintln(progress, "prefill: vacuum")
	for _, statement := range []string{"VACUUM (ANALYZE) items, operations, deductions, deduction_lines, movements", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
	}
	return nil
}

// prefillStatement writes the $1-th million of deductions, with ids in the order of time as UUIDs of version 7 are.
const prefillStatement = `
WITH prefilled AS MATERIALIZED (
    SELECT i.id, i.on_hand, i.held, i.version, row_number() OVER (ORDER BY i.sku) - 1 AS place
    FROM items i
    WHERE i.sku LIKE 'prefill-%'
), made AS MATERIALIZED (
    SELECT n, (lpad(to_hex(1700000000000 + n / 20), 12, '0') || '7' || substr(md5(n::text), 1, 3) || 'a' || substr(md5(n::text), 4, 15))::uuid AS id,
        'prefill-' || lpad(n::text, 10, '0') AS name, md5(n::text) AS digest,
        i.id AS item, i.on_hand, i.held, i.version, n % 1000000 / $2::bigint + 1 AS step
    FROM generate_series($1::bigint * 1000000, $1::bigint * 1000000 + 999999) AS n
    JOIN prefilled i ON i.place = n % $2::bigint
    ORDER BY n
), operation AS (
    INSERT INTO operations (client, key, fingerprint, deduction_id, at, kind)
    SELECT $3::text, name, decode(digest || digest, 'hex'), id, now(), 'deduct' FROM made
), deduction AS (
    INSERT INTO deductions (id, created_at, updated_at, state, client, order_id, part)
    SELECT id, now(), now(), 'committed', $3::text, name, '' FROM made
), line AS (
    INSERT INTO deduction_lines (deduction_id, item_id, quantity, held, committed, line_no, line_id)
    SELECT id, item, 1, 0, 1, 1, '' FROM made
), movement AS (
    INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, deduction_id, kind, actor)
    SELECT item, version + step, -1, 0, on_hand - step, held, now(), id, 'deduct', $3::text FROM made
)
UPDATE items i
SET on_hand = i.on_hand - 1000000 / $2::bigint, version = i.version + 1000000 / $2::bigint, updated_at = now()
FROM prefilled p
WHERE i.id = p.id`
