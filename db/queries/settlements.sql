-- name: DaysToSettle :one
-- The first day that is not settled, if there is any item at all, and the last one that is over, both in UTC. A day
-- counts as over a minute later, when whatever was on its way at midnight has ended.
SELECT COALESCE(
        (SELECT max(d.day) + 1 FROM settled_days d),
        (SELECT (min(i.created_at) AT TIME ZONE 'UTC')::date FROM items i)
    )::date AS first,
    (((clock_timestamp() - interval '1 minute') AT TIME ZONE 'UTC')::date - 1)::date AS last
WHERE EXISTS (SELECT FROM items);

-- name: SettleItems :one
-- Settles a day for the next items by id, those that moved in it. The day of an item ends at its last movement before
-- midnight; a day that was settled for an item already is left as it is.
WITH slice AS (
    SELECT i.id
    FROM items i
    WHERE i.id > @after_id::bigint
    ORDER BY i.id
    LIMIT @row_limit::integer
), unsettled AS (
    SELECT s.id, COALESCE(t.version, 0) AS settled
    FROM slice s
    LEFT JOIN LATERAL (
        SELECT l.version, l.day
        FROM settlements l
        WHERE l.item_id = s.id
        ORDER BY l.version DESC
        LIMIT 1
    ) t ON true
    WHERE t.day IS NULL OR t.day < @day::date
), bounded AS (
    SELECT o.id, ends.first, ends.version
    FROM unsettled o
    CROSS JOIN LATERAL (
        SELECT min(m.version) AS first, max(m.version) FILTER (WHERE (m.at AT TIME ZONE 'UTC')::date <= @day::date) AS version
        FROM movements m
        WHERE m.item_id = o.id AND m.version > o.settled
    ) ends
    WHERE ends.version IS NOT NULL
), settled AS (
    INSERT INTO settlements (day, item_id, version, opening, received, deducted, returned, adjusted, closing)
    SELECT @day::date, b.id, b.version, sums.opening, sums.received, sums.deducted, sums.returned, sums.adjusted, sums.closing
    FROM bounded b
    CROSS JOIN LATERAL (
        SELECT max(m.on_hand - m.delta_on_hand) FILTER (WHERE m.version = b.first) AS opening,
            COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind = 'receive'), 0) AS received,
            COALESCE(-sum(m.delta_on_hand) FILTER (WHERE m.kind IN ('deduct', 'commit')), 0) AS deducted,
            COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind = 'return'), 0) AS returned,
            COALESCE(sum(m.delta_on_hand) FILTER (WHERE m.kind NOT IN ('receive', 'deduct', 'commit', 'return')), 0) AS adjusted,
            max(m.on_hand) FILTER (WHERE m.version = b.version) AS closing
        FROM movements m
        WHERE m.item_id = b.id AND m.version >= b.first AND m.version <= b.version
    ) sums
    ON CONFLICT ON CONSTRAINT settlements_pkey DO NOTHING
    RETURNING item_id
)
SELECT (SELECT COALESCE(max(s.id), 0) FROM slice s)::bigint AS last_id, (SELECT count(*) FROM settled)::bigint AS settled;

-- name: CloseDay :execrows
-- Says that a day's settlement is complete.
INSERT INTO settled_days (day, settled_at, token, items)
SELECT @day::date, clock_timestamp(), @token::bigint, count(*)
FROM settlements s
WHERE s.day = @day::date
ON CONFLICT (day) DO NOTHING;

-- name: GetSettledDay :one
SELECT d.day, d.settled_at, d.items
FROM settled_days d
WHERE d.day = @day::date;

-- name: ListSettlements :many
-- A day's settlements in the order in which the items were created.
SELECT s.item_id, i.sku, i.location, s.version, s.opening, s.received, s.deducted, s.returned, s.adjusted, s.closing
FROM settlements s
JOIN items i ON i.id = s.item_id
WHERE s.day = @day::date AND s.item_id > @after_id::bigint
    AND (@location::text = '' OR i.location = @location::text)
ORDER BY s.item_id
LIMIT @row_limit::integer;
