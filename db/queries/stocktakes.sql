-- name: OpenStocktake :one
-- Opens a count of an item, if it exists and the time of the last one is over: then it claims the item's fence.
WITH item AS (
    SELECT i.id, i.version, i.on_hand
    FROM items i
    WHERE i.sku = @sku::text AND i.location = @location::text
), claimed AS (
    INSERT INTO fences AS f (key, token, ends_at)
    SELECT 'stocktake/' || i.id, lock_next_token(), clock_timestamp() + @lease::interval
    FROM item i
    ON CONFLICT (key) DO UPDATE
    SET token = lock_next_token(), ends_at = excluded.ends_at
    WHERE f.ends_at <= clock_timestamp()
    RETURNING f.token, f.ends_at
)
INSERT INTO stocktakes (id, item_id, token, version, on_hand, opened_at, expires_at, client, key, reference)
SELECT @id::uuid, i.id, c.token, i.version, i.on_hand, clock_timestamp(), c.ends_at, @client::text, @key::text, @reference::text
FROM item i, claimed c
RETURNING id;

-- name: FindStocktake :one
-- The count that was opened under a key.
SELECT s.id
FROM stocktakes s
WHERE s.client = @client::text AND s.key = @key::text;

-- name: FindOpenStocktake :one
-- The count of an item whose time is not over.
SELECT s.id
FROM items i
JOIN fences f ON f.key = 'stocktake/' || i.id
JOIN stocktakes s ON s.item_id = i.id AND s.token = f.token
WHERE i.sku = @sku::text AND i.location = @location::text AND f.ends_at > clock_timestamp();

-- name: GetStocktake :one
-- A count with what became of it: the version it wrote, if it did, and whether it still may.
SELECT s.id, s.item_id, i.sku, i.location, s.token, s.version, s.on_hand, s.opened_at, s.expires_at, s.client, s.reference,
    o.version AS written,
    EXISTS (
        SELECT FROM fences f
        WHERE f.key = 'stocktake/' || s.item_id AND f.token = s.token AND f.ends_at > clock_timestamp()
    )::boolean AS open
FROM stocktakes s
JOIN items i ON i.id = s.item_id
LEFT JOIN operations o ON o.client = '' AND o.key = 'stocktake ' || s.id
WHERE s.id = @id::uuid;

-- name: SumMovements :one
-- What moved on an item between two versions, both excluded.
SELECT COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind = 'receive'), 0)::bigint AS received,
    COALESCE(-sum(m.delta_on_hand) FILTER (WHERE m.kind IN ('deduct', 'commit')), 0)::bigint AS deducted,
    COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind = 'return'), 0)::bigint AS returned,
    COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind NOT IN ('receive', 'deduct', 'commit', 'return')), 0)::bigint AS adjusted,
    count(*)::bigint AS movements
FROM movements m
WHERE m.item_id = @item_id::bigint AND m.version > @after_version::bigint AND m.version < @before_version::bigint;
