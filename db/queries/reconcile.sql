-- name: ListItemIDs :many
-- One page of all items, by id.
SELECT i.id, i.sku, i.location
FROM items i
WHERE i.id > @after_id
ORDER BY i.id
LIMIT @row_limit;

-- name: ReadChecked :many
-- How far the movements of items were checked.
SELECT c.item_id, c.version, c.on_hand, c.held
FROM checked_items c
WHERE c.item_id = ANY(@item_ids::bigint[]);

-- name: CheckItems :many
-- The row of each item beside what it must agree with: what its open holds hold, and its movements after a version
-- at which they came to known figures, at most so many of them. gap_at is the first that does not follow the version
-- before it, broken_at the first whose figures are not those before it and its change; 0 for none. The to_ figures are those
-- of the last movement read. A checkpoint stands for all movements before it, so there are none. One statement, so one snapshot.
SELECT i.id, i.sku, i.location, i.on_hand, i.held, i.safety_stock, i.version,
    COALESCE(h.units, 0)::bigint AS open_held,
    COALESCE(m.movements, 0)::bigint AS movements,
    COALESCE(m.gap_at, 0)::bigint AS gap_at,
    COALESCE(m.broken_at, 0)::bigint AS broken_at,
    COALESCE(m.version, c.version)::bigint AS to_version,
    COALESCE(m.on_hand, c.on_hand)::bigint AS to_on_hand,
    COALESCE(m.held, c.held)::bigint AS to_held
FROM ROWS FROM (
    unnest(@item_ids::bigint[]), unnest(@versions::bigint[]), unnest(@on_hand::bigint[]), unnest(@held::bigint[])
) AS c(id, version, on_hand, held)
JOIN items i ON i.id = c.id
CROSS JOIN LATERAL (
    SELECT sum(l.held) AS units
    FROM deduction_lines l
    JOIN deductions d ON d.id = l.deduction_id AND d.state = 'held'
    WHERE l.item_id = i.id AND l.held > 0
) AS h
CROSS JOIN LATERAL (
    SELECT count(*) AS movements,
        min(s.version) FILTER (WHERE NOT s.next) AS gap_at,
        min(s.version) FILTER (WHERE NOT s.follows) AS broken_at,
        (array_agg(s.version ORDER BY s.version DESC))[1] AS version,
        (array_agg(s.on_hand ORDER BY s.version DESC))[1] AS on_hand,
        (array_agg(s.held ORDER BY s.version DESC))[1] AS held
    FROM (
        SELECT a.version, a.on_hand, a.held,
            CASE WHEN a.kind = 'checkpoint' THEN NOT EXISTS (SELECT FROM movements e WHERE e.item_id = i.id AND e.version < a.version)
                ELSE a.version = lag(a.version, 1, c.version) OVER by_version + 1
            END AS next,
            CASE WHEN a.kind = 'checkpoint' THEN a.on_hand = a.delta_on_hand AND a.held = a.delta_held
                ELSE a.on_hand = lag(a.on_hand, 1, c.on_hand) OVER by_version + a.delta_on_hand
                    AND a.held = lag(a.held, 1, c.held) OVER by_version + a.delta_held
            END AS follows
        FROM (
            SELECT b.version, b.on_hand, b.held, b.delta_on_hand, b.delta_held, b.kind
            FROM movements b
            WHERE b.item_id = i.id AND b.version > c.version
            ORDER BY b.version
            LIMIT @movement_limit
        ) AS a
        WINDOW by_version AS (ORDER BY a.version)
    ) AS s
) AS m;

-- name: ReadMovements :many
-- An item's movements up to a version, the newest first.
SELECT m.version, m.delta_on_hand, m.delta_held, m.on_hand, m.held, m.at, m.deduction_id, m.kind
FROM movements m
WHERE m.item_id = @item_id AND m.version <= @version
ORDER BY m.version DESC
LIMIT @row_limit;

-- name: ListHolders :many
-- Who holds an item, the hold that ends first first.
SELECT d.id, d.client, d.order_id, d.part, d.state, COALESCE(d.expires_at, d.created_at)::timestamptz AS expires_at, l.line_no, l.held
FROM deduction_lines l
JOIN deductions d ON d.id = l.deduction_id
WHERE l.item_id = @item_id AND l.held > 0
ORDER BY expires_at, d.id, l.line_no
LIMIT @row_limit;

-- name: SumHolders :one
-- How many holds an item has, what they hold, how much of it is over by the ledger's clock, and that clock.
SELECT count(*)::bigint AS holds, COALESCE(sum(l.held), 0)::bigint AS held,
    COALESCE(sum(l.held) FILTER (WHERE d.expires_at <= statement_timestamp()), 0)::bigint AS overdue,
    statement_timestamp()::timestamptz AS read_at
FROM deduction_lines l
JOIN deductions d ON d.id = l.deduction_id AND d.state = 'held'
WHERE l.item_id = @item_id AND l.held > 0;

-- name: LastMovements :many
-- The last movements of an item, the newest first.
SELECT m.version, m.delta_on_hand, m.delta_held, m.on_hand, m.held, m.at, m.deduction_id, m.kind,
    COALESCE(m.actor, d.client, '')::text AS actor, m.reason, m.reference
FROM movements m
LEFT JOIN deductions d ON d.id = m.deduction_id
WHERE m.item_id = @item_id
ORDER BY m.version DESC
LIMIT @row_limit;

-- name: ListCustomers :many
-- Who has most of an item, and of how many customers how many units in all. It reads every counter of the item.
SELECT u.client, u.customer, u.units, count(*) OVER ()::bigint AS customers, sum(u.units) OVER ()::bigint AS all_units
FROM customer_units u
WHERE u.item_id = @item_id AND u.units > 0
ORDER BY u.units DESC, u.client, u.customer
LIMIT @row_limit;

-- name: CheckCustomers :many
-- One page of what customers have by their counters, beside what they have by their deductions. One statement, so one snapshot.
SELECT u.item_id, COALESCE(i.sku, '')::text AS sku, COALESCE(i.location, '')::text AS location, u.client, u.customer, u.units,
    COALESCE((
        SELECT sum(l.held + l.committed - l.returned)
        FROM deductions d
        JOIN deduction_lines l ON l.deduction_id = d.id AND l.item_id = u.item_id
        WHERE d.client = u.client AND d.customer = u.customer
    ), 0)::bigint AS taken
FROM (
    SELECT p.item_id, p.client, p.customer, p.units
    FROM customer_units p
    WHERE (p.item_id, p.client, p.customer) > (@after_item_id::bigint, @after_client::text, @after_customer::text)
    ORDER BY p.item_id, p.client, p.customer
    LIMIT @row_limit
) AS u
LEFT JOIN items i ON i.id = u.item_id
ORDER BY u.item_id, u.client, u.customer;

-- name: FindUncounted :many
-- Of some deductions, the lines of which a customer has something without a counter.
SELECT d.id, d.client, d.customer::text AS customer, l.item_id, i.sku, i.location, l.line_no,
    (l.held + l.committed - l.returned)::bigint AS units
FROM deductions d
JOIN deduction_lines l ON l.deduction_id = d.id AND l.held + l.committed > l.returned
JOIN items i ON i.id = l.item_id
WHERE d.id = ANY(@ids::uuid[]) AND d.customer IS NOT NULL
    AND NOT EXISTS (SELECT FROM customer_units u WHERE u.item_id = l.item_id AND u.client = d.client AND u.customer = d.customer)
ORDER BY d.id, l.line_no;

-- name: CheckKeys :many
-- One page of all idempotency keys, each with whether its effect is there: its deduction, or its movement or the
-- checkpoint that stands for it. That of a void key is to be none.
SELECT o.client, o.key, o.kind, o.deduction_id, o.item_id, o.version,
    ((d.id IS NOT NULL)::integer + COALESCE((
        SELECT m.version = o.version OR m.kind = 'checkpoint'
        FROM movements m
        WHERE m.item_id = o.item_id AND m.version >= o.version
        ORDER BY m.version
        LIMIT 1
    ), false)::integer)::integer AS effects
FROM (
    SELECT p.client, p.key, p.kind, p.deduction_id, p.item_id, p.version
    FROM operations p
    WHERE (p.client, p.key) > (@after_client::text, @after_key::text)
    ORDER BY p.client, p.key
    LIMIT @row_limit
) AS o
LEFT JOIN deductions d ON d.id = o.deduction_id AND o.client IN (d.client, '') -- a commit of named quantities without a key has one of nobody's
ORDER BY o.client, o.key;

-- name: RememberChecked :execrows
-- Notes how far items are checked; never less far than before.
INSERT INTO checked_items AS was (item_id, version, on_hand, held)
SELECT c.item_id, c.version, c.on_hand, c.held
FROM ROWS FROM (
    unnest(@item_ids::bigint[]), unnest(@versions::bigint[]), unnest(@on_hand::bigint[]), unnest(@held::bigint[])
) AS c(item_id, version, on_hand, held)
ORDER BY c.item_id
ON CONFLICT (item_id) DO UPDATE
SET version = excluded.version, on_hand = excluded.on_hand, held = excluded.held
WHERE was.version < excluded.version;

-- name: RecordFinding :execrows
INSERT INTO findings AS was (found_at, seen_at, repaired, rule, subject, evidence)
VALUES (now(), now(), @repaired, @rule, @subject, @evidence::text[])
ON CONFLICT (rule, subject) DO UPDATE
SET seen_at = now(), repaired = excluded.repaired, evidence = excluded.evidence;

-- name: ReadRound :one
-- Where the continuous check is.
SELECT r.item_id, r.items_done, r.customers_done, r.client, r.key, r.began_at, r.items, r.movements, r.customers, r.keys,
    r.last_began_at, r.last_ended_at, r.last_items, r.last_movements, r.last_customers, r.last_keys
FROM reconciliation r;

-- name: AdvanceRound :execrows
-- Moves the walk on, if it is still where the step found it.
UPDATE reconciliation r
SET item_id = @item_id, items_done = @items_done, customers_done = @customers_done, client = @client, key = @key,
    items = r.items + @items::bigint, movements = r.movements + @movements::bigint, customers = r.customers + @customers::bigint,
    keys = r.keys + @keys::bigint
WHERE (r.item_id, r.items_done, r.customers_done, r.client, r.key)
    = (@from_item_id::bigint, @from_items_done::boolean, @from_customers_done::boolean, @from_client::text, @from_key::text);

-- name: EndRound :execrows
-- Ends the round and begins the next, if the walk is still where the step found it, among the keys.
UPDATE reconciliation r
SET item_id = 0, items_done = false, customers_done = false, client = '', key = '',
    began_at = now(), items = 0, movements = 0, customers = 0, keys = 0,
    last_began_at = r.began_at, last_ended_at = now(), last_items = r.items, last_movements = r.movements + @movements::bigint,
    last_customers = r.customers, last_keys = r.keys + @keys::bigint
WHERE r.customers_done AND (r.client, r.key) = (@from_client::text, @from_key::text);

-- name: ForgetFindings :execrows
-- Forgets what the round that ended last did not find any more.
DELETE FROM findings f
USING reconciliation r
WHERE f.seen_at < r.last_began_at;

-- name: ListFindings :many
-- What was found, the oldest first.
SELECT f.rule, f.subject, f.evidence, f.found_at, f.seen_at, f.repaired
FROM findings f
ORDER BY f.found_at, f.rule, f.subject
LIMIT @row_limit;

-- name: CountFindings :many
-- How much was found, by rule.
SELECT f.rule, count(*)::bigint AS findings, (count(*) FILTER (WHERE NOT f.repaired))::bigint AS open
FROM findings f
GROUP BY f.rule;

-- name: TakeTime :one
-- Lets the rest of the transaction read whole tables, by whatever plan is best.
SELECT set_config('statement_timeout', '0', true)::text AS statement_timeout,
    set_config('enable_seqscan', 'on', true)::text AS enable_seqscan;

-- name: FindLinesNotOfState :many
-- Deductions whose lines are not as their state says. It reads every deduction.
SELECT d.id, d.state, sum(l.held)::bigint AS held, sum(l.committed)::bigint AS committed, sum(l.returned)::bigint AS returned
FROM deductions d
JOIN deduction_lines l ON l.deduction_id = d.id
GROUP BY d.id, d.state
HAVING NOT CASE d.state
    WHEN 'held' THEN sum(l.held) > 0
    WHEN 'committed' THEN sum(l.held) = 0 AND sum(l.committed) > sum(l.returned)
    WHEN 'returned' THEN sum(l.held) = 0 AND sum(l.committed) > 0 AND sum(l.committed) = sum(l.returned)
    ELSE sum(l.held) = 0 AND sum(l.committed) = 0
END
LIMIT @row_limit;

-- name: FindLinesNotMoved :many
-- Lines that are not what the movements of their deduction say, and movements without a line. It reads every movement. Where a
-- checkpoint stands for what a deduction did first, nothing is left to compare.
SELECT COALESCE(l.deduction_id, m.deduction_id)::uuid AS deduction_id, COALESCE(l.item_id, m.item_id)::bigint AS item_id,
    COALESCE(l.held, 0)::bigint AS held, COALESCE(l.committed, 0)::bigint AS committed, COALESCE(l.returned, 0)::bigint AS returned,
    COALESCE(m.held, 0)::bigint AS moved_held, COALESCE(m.committed, 0)::bigint AS moved_committed,
    COALESCE(m.returned, 0)::bigint AS moved_returned, (l.deduction_id IS NOT NULL)::boolean AS has_line
FROM (
    SELECT a.deduction_id, a.item_id, sum(a.held) AS held, sum(a.committed) AS committed, sum(a.returned) AS returned
    FROM deduction_lines a
    GROUP BY a.deduction_id, a.item_id
) AS l
FULL JOIN (
    SELECT b.deduction_id, b.item_id, sum(b.delta_held) AS held,
        -sum(b.delta_on_hand) FILTER (WHERE b.kind IN ('deduct', 'commit')) AS committed,
        sum(b.delta_on_hand) FILTER (WHERE b.kind = 'return') AS returned
    FROM movements b
    WHERE b.deduction_id IS NOT NULL
    GROUP BY b.deduction_id, b.item_id
) AS m ON m.deduction_id = l.deduction_id AND m.item_id = l.item_id
WHERE (l.deduction_id IS NULL OR l.held <> COALESCE(m.held, 0) OR l.committed <> COALESCE(m.committed, 0)
        OR l.returned <> COALESCE(m.returned, 0))
    AND NOT EXISTS (
        SELECT
        FROM deductions d
        JOIN movements c ON c.item_id = l.item_id AND c.kind = 'checkpoint' AND c.at >= d.created_at
        WHERE d.id = l.deduction_id
    )
LIMIT @row_limit;

-- name: FindDeductionsNotKeyed :many
-- Deductions that no idempotency key names as its own, or more than one. It reads every deduction and every key.
SELECT d.id, d.client, d.order_id, count(o.key)::bigint AS keys
FROM deductions d
LEFT JOIN operations o ON o.deduction_id = d.id AND o.kind = 'deduct' AND o.client = d.client
GROUP BY d.id
HAVING count(o.key) <> 1
LIMIT @row_limit;

-- name: FindAdjustmentsNotKeyed :many
-- Adjustments that no idempotency key names as its own, or more than one. It reads every movement and every key.
SELECT m.item_id, m.version, m.kind, count(o.key)::bigint AS keys
FROM movements m
LEFT JOIN operations o ON o.item_id = m.item_id AND o.version = m.version AND o.kind = 'adjust'
WHERE m.kind IN ('receive', 'adjust', 'count')
GROUP BY m.item_id, m.version
HAVING count(o.key) <> 1
LIMIT @row_limit;
