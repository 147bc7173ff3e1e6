-- name: ReadItems :many
-- Reads the figures of the named items as they are committed now; items that do not exist are missing.
SELECT i.id, i.sku, i.location, i.on_hand, i.held, i.safety_stock, i.low_stock_at, i.version
FROM ROWS FROM (unnest(@skus::text[]), unnest(@locations::text[])) AS n(sku, location)
JOIN items i ON i.sku = n.sku AND i.location = n.location;

-- name: LockItems :many
-- Reads the figures of the named items and locks their rows, in order, until the transaction ends.
SELECT i.id, i.sku, i.location, i.on_hand, i.held, i.safety_stock, i.low_stock_at, i.version
FROM ROWS FROM (unnest(@skus::text[]), unnest(@locations::text[])) AS n(sku, location)
JOIN items i ON i.sku = n.sku AND i.location = n.location
ORDER BY i.id
FOR UPDATE OF i;

-- name: ReadEpoch :one
-- The WAL timeline this server writes on, which goes up at every failover and every restore to a point in
-- time: a row's version may go back only when it does. It fails on a standby, where nothing may be decided.
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer AS epoch;

-- name: GetItem :one
SELECT id, on_hand, held, safety_stock, low_stock_at, version, created_at, updated_at, sku, location, label
FROM items
WHERE sku = @sku AND location = @location;

-- name: ListLocations :many
SELECT id, on_hand, held, safety_stock, low_stock_at, version, created_at, updated_at, sku, location, label
FROM items
WHERE sku = @sku
ORDER BY location
LIMIT @row_limit;

-- name: ListSources :many
-- Where a SKU may be taken from: locations that have some of it first, then by name.
SELECT location
FROM items
WHERE sku = @sku AND (@within::text[] IS NULL OR location = ANY(@within::text[]))
ORDER BY on_hand - held - safety_stock <= 0, location
LIMIT @row_limit;

-- name: ListItems :many
SELECT id, on_hand, held, safety_stock, low_stock_at, version, created_at, updated_at, sku, location, label
FROM items
WHERE (sku, location) > (@after_sku::text, @after_location::text)
    AND (sku, location) >= (@prefix::text, '')
    AND starts_with(sku, @prefix::text)
    AND (@prefix_end::text = '' OR sku < @prefix_end::text)
    AND (@location::text = '' OR location = @location::text)
    AND (NOT @low::boolean OR on_hand - held - safety_stock <= low_stock_at)
ORDER BY sku, location
LIMIT @row_limit;

-- name: InsertItem :one
-- Creates an item unless it exists, then no row.
INSERT INTO items (sku, location, safety_stock, low_stock_at, label)
VALUES (@sku, @location, @safety_stock, sqlc.narg(low_stock_at), @label)
ON CONFLICT (sku, location) DO NOTHING
RETURNING id, on_hand, held, safety_stock, low_stock_at, version, created_at, updated_at, sku, location, label;

-- name: ConfigureItem :one
-- Changes an item's settings and appends the movement that gives the change a version; no row when the
-- item has another version than asked for, does not exist, or already is as asked. A change that makes it low is told.
WITH seen AS (
    SELECT s.id, COALESCE(s.on_hand - s.held - s.safety_stock <= s.low_stock_at, false) AS low
    FROM items s
    WHERE s.sku = @sku AND s.location = @location
        AND s.version = COALESCE(sqlc.narg(if_version)::bigint, s.version)
        AND (s.safety_stock, s.low_stock_at, s.label)
            IS DISTINCT FROM (@safety_stock::bigint, sqlc.narg(low_stock_at)::bigint, @label::text)
    FOR UPDATE
), changed AS (
    UPDATE items i
    SET safety_stock = @safety_stock::bigint, low_stock_at = sqlc.narg(low_stock_at)::bigint, label = @label::text,
        version = i.version + 1, updated_at = now()
    FROM seen s
    WHERE i.id = s.id
    RETURNING i.id, i.on_hand, i.held, i.safety_stock, i.low_stock_at, i.version,
        i.created_at, i.updated_at, i.sku, i.location, i.label, s.low AS was_low
), moved AS (
    INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind, actor, reason)
    SELECT c.id, c.version, 0, 0, c.on_hand, c.held, now(), 'configure', @actor::text, format('safety_stock=%s', c.safety_stock)
    FROM changed c
), told AS (
    INSERT INTO events (item_id, version, on_hand, held, safety_stock, low_stock_at, at, kind)
    SELECT c.id, c.version, c.on_hand, c.held, c.safety_stock, c.low_stock_at, now(), 'low-stock'
    FROM changed c
    WHERE NOT c.was_low AND c.on_hand - c.held - c.safety_stock <= c.low_stock_at
)
SELECT c.id, c.on_hand, c.held, c.safety_stock, c.low_stock_at, c.version, c.created_at, c.updated_at, c.sku, c.location, c.label
FROM changed c;

-- name: ImportItems :many
-- Creates items that do not exist, if they may be, and changes the settings of those that have others than named (a number
-- below 0 names none), in the order of their rows. Lists every item it created or changed.
WITH wanted AS (
    SELECT w.sku, w.location, w.may_create, NULLIF(w.safety_stock, -1) AS safety_stock, NULLIF(w.low_stock_at, -1) AS low_stock_at,
        CASE WHEN w.labelled THEN w.label END AS label
    FROM ROWS FROM (
        unnest(@skus::text[]), unnest(@locations::text[]), unnest(@may_create::boolean[]),
        unnest(@safety_stocks::bigint[]), unnest(@low_stock_ats::bigint[]), unnest(@labelled::boolean[]), unnest(@labels::text[])
    ) AS w(sku, location, may_create, safety_stock, low_stock_at, labelled, label)
), seen AS (
    SELECT s.id, COALESCE(s.on_hand - s.held - s.safety_stock <= s.low_stock_at, false) AS low,
        COALESCE(w.safety_stock, s.safety_stock) AS safety_stock,
        COALESCE(w.low_stock_at, s.low_stock_at) AS low_stock_at,
        COALESCE(w.label, s.label) AS label
    FROM wanted w
    JOIN items s ON s.sku = w.sku AND s.location = w.location
    WHERE s.safety_stock <> w.safety_stock OR s.low_stock_at IS DISTINCT FROM COALESCE(w.low_stock_at, s.low_stock_at) OR s.label <> w.label
    ORDER BY s.id
    FOR UPDATE OF s
), created AS (
    INSERT INTO items (sku, location, safety_stock, low_stock_at, label)
    SELECT w.sku, w.location, COALESCE(w.safety_stock, 0), w.low_stock_at, COALESCE(w.label, '')
    FROM wanted w
    WHERE w.may_create AND NOT EXISTS (SELECT FROM items i WHERE i.sku = w.sku AND i.location = w.location)
    ORDER BY w.sku, w.location
    ON CONFLICT (sku, location) DO NOTHING
    RETURNING id, on_hand, held, safety_stock, low_stock_at, version, sku, location
), changed AS (
    UPDATE items i
    SET safety_stock = s.safety_stock, low_stock_at = s.low_stock_at, label = s.label, version = i.version + 1, updated_at = now()
    FROM seen s
    WHERE i.id = s.id
    RETURNING i.id, i.on_hand, i.held, i.safety_stock, i.low_stock_at, i.version, i.sku, i.location, s.low AS was_low
), moved AS (
    INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind, actor, reason)
    SELECT c.id, c.version, 0, 0, c.on_hand, c.held, now(), 'configure', @actor::text, format('safety_stock=%s', c.safety_stock)
    FROM changed c
), told AS (
    INSERT INTO events (item_id, version, on_hand, held, safety_stock, low_stock_at, at, kind)
    SELECT c.id, c.version, c.on_hand, c.held, c.safety_stock, c.low_stock_at, now(), 'low-stock'
    FROM changed c
    WHERE NOT c.was_low AND c.on_hand - c.held - c.safety_stock <= c.low_stock_at
)
SELECT n.id, n.on_hand, n.held, n.safety_stock, n.low_stock_at, n.version, n.sku, n.location, true AS created
FROM created n
UNION ALL
SELECT c.id, c.on_hand, c.held, c.safety_stock, c.low_stock_at, c.version, c.sku, c.location, false AS created
FROM changed c;

-- name: ListMovements :many
SELECT m.version, m.delta_on_hand, m.delta_held, m.on_hand, m.held, m.at, m.deduction_id, m.kind,
    COALESCE(m.actor, d.client, '')::text AS actor, m.reason, m.reference
FROM movements m
LEFT JOIN deductions d ON d.id = m.deduction_id
WHERE m.item_id = @item_id AND m.version > @after_version
ORDER BY m.version
LIMIT @row_limit;

-- name: GetMovement :one
-- Reads a movement, or the checkpoint that stands for it.
SELECT version, delta_on_hand, delta_held, on_hand, held, at, deduction_id, kind,
    COALESCE(actor, '')::text AS actor, reason, reference
FROM movements
WHERE item_id = @item_id AND version >= @version
ORDER BY version
LIMIT 1;

-- name: ReadSettings :one
-- What the promise of durability rests on.
SELECT current_setting('fsync')::text AS fsync,
    current_setting('synchronous_commit')::text AS synchronous_commit,
    current_setting('full_page_writes')::text AS full_page_writes,
    current_setting('server_version_num')::integer AS server_version,
    current_setting('server_encoding')::text AS encoding,
    pg_is_in_recovery() AS in_recovery;
