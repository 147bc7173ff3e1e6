-- name: HoldFences :many
-- Reads the newest claim of each key, and locks it against a newer one until the transaction ends.
SELECT f.key, f.token, (f.ends_at > clock_timestamp())::boolean AS in_time
FROM fences f
WHERE f.key = ANY(@keys::text[])
ORDER BY f.key
FOR SHARE OF f;

-- name: EndFence :execrows
-- Ends the time of a claim, so that nothing more is written under it.
UPDATE fences f
SET ends_at = clock_timestamp()
WHERE f.key = @key::text AND f.token = @token::bigint AND f.ends_at > clock_timestamp();

-- name: AllowLongStatements :exec
-- For the rest of the transaction: it works on many rows, where the session's limit is meant for one request.
SELECT set_config('statement_timeout', '60s', true);
