-- name: LockRetention :exec
-- Makes steps of retention take turns, whoever runs them, and bounds how long a process that was stopped in the middle of
-- one can keep the others waiting.
SELECT pg_advisory_xact_lock(@lock::bigint), set_config('idle_in_transaction_session_timeout', '30s', true);

-- name: BoundRetention :one
-- The moment before which movements may be rolled up: the one that is asked for, unless a settlement has still to look at
-- older ones. A movement that was late for its day is in the next one, so the last day that is settled is kept as well.
SELECT LEAST(@before::timestamptz, (SELECT max(d.day)::timestamp AT TIME ZONE 'UTC' FROM settled_days d))::timestamptz AS bound;

-- name: ListItemsByAge :many
-- Lists items by number, and whether the oldest movement of each that is no checkpoint is from before a moment.
SELECT i.id, i.sku, i.location,
    COALESCE((
        SELECT m.at
        FROM movements m
        WHERE m.item_id = i.id AND m.kind <> 'checkpoint'
        ORDER BY m.version
        LIMIT 1
    ) < @before::timestamptz, false)::boolean AS old
FROM items i
WHERE i.id > @after_id
ORDER BY i.id
LIMIT @row_limit;

-- name: RollUpMovements :many
-- Deletes an item's movements from the first one to the last before a moment, at most so many, and returns them; nothing
-- unless there are two.
WITH oldest AS (
    SELECT p.version, p.at, p.kind
    FROM movements p
    WHERE p.item_id = @item_id::bigint
    ORDER BY p.version
    LIMIT @row_limit::integer
), old AS (
    SELECT o.version
    FROM oldest o
    WHERE NOT EXISTS (
        SELECT
        FROM oldest y
        WHERE y.version <= o.version AND y.at >= @before::timestamptz AND y.kind <> 'checkpoint'
    )
), gone AS (
    DELETE FROM movements m
    WHERE m.item_id = @item_id::bigint
        AND m.version <= (SELECT max(o.version) FROM old o HAVING count(*) >= 2)
    RETURNING m.version, m.delta_on_hand, m.delta_held, m.on_hand, m.held, m.at, m.deduction_id, m.kind, m.actor, m.reason, m.reference
)
SELECT g.version, g.delta_on_hand, g.delta_held, g.on_hand, g.held, g.at, g.deduction_id, g.kind,
    COALESCE(g.actor, d.client, '')::text AS actor, g.reason, g.reference
FROM gone g
LEFT JOIN deductions d ON d.id = g.deduction_id
ORDER BY g.version;

-- name: InsertCheckpoint :exec
-- Puts one movement in the place of those that were rolled up.
INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind, actor, reason)
VALUES (@item_id, @version, @on_hand, @held, @on_hand, @held, @at, 'checkpoint', '', @reason);

-- name: StartArchive :execrows
INSERT INTO archives (name) VALUES (@name) ON CONFLICT (name) DO NOTHING;

-- name: GetArchive :one
SELECT bytes FROM archives WHERE name = @name;

-- name: GrowArchive :execrows
-- Notes how much of an archive is in force; no row when somebody else has written to it.
UPDATE archives a
SET bytes = @bytes::bigint, movements = a.movements + @movements::bigint, updated_at = now()
WHERE a.name = @name AND a.bytes = @seen_bytes::bigint;
