-- name: DrawNumbers :one
-- Takes the next numbers of a series and returns the first.
UPDATE number_series s
SET next = s.next + @count::bigint
WHERE s.name = @name::text
RETURNING (s.next - @count::bigint)::bigint AS first;

-- name: LeaseWorker :one
-- Gives the next span of time (milliseconds, from the caller's clock or from where the worker's last span ended) of one
-- worker to its owner, or of one that nobody may use any more to a new owner.
UPDATE number_workers w
SET used_until = GREATEST(w.used_until, @now_ms::bigint) + @span_ms::bigint, owner = @owner::text
WHERE w.worker = (
    SELECT f.worker
    FROM number_workers f
    WHERE f.owner = @owner::text OR f.used_until <= @now_ms::bigint
    ORDER BY f.owner = @owner::text DESC, f.used_until, f.worker
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING w.worker, (w.used_until - @span_ms::bigint)::bigint AS from_ms, w.used_until AS until_ms;

-- name: ListByNumber :many
-- The client's deduction of that number.
SELECT d.id
FROM deductions d
WHERE d.number = @number::bigint AND d.client = @client::text;
