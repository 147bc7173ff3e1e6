-- name: BeginRun :one
-- Claims the fence of a job and, only if its token is the newest, the tick: a new one, or one that was begun and
-- never ended. A tick before one that has run is not begun any more.
WITH claimed AS (
    INSERT INTO fences AS f (key, token, ends_at)
    VALUES (@fence::text, @token::bigint, clock_timestamp() + @time_limit::interval)
    ON CONFLICT (key) DO UPDATE
    SET token = excluded.token, ends_at = excluded.ends_at
    WHERE f.token < excluded.token
    RETURNING f.token
), begun AS (
    INSERT INTO job_runs AS r (job, scheduled_at, started_at, token, runner)
    SELECT @job::text, @scheduled_at::timestamptz, clock_timestamp(), c.token, @runner::text
    FROM claimed c
    WHERE NOT EXISTS (SELECT FROM job_runs n WHERE n.job = @job::text AND n.scheduled_at > @scheduled_at::timestamptz)
    ON CONFLICT (job, scheduled_at) DO UPDATE
    SET started_at = excluded.started_at, token = excluded.token, runner = excluded.runner, attempts = r.attempts + 1
    WHERE r.ended_at IS NULL
    RETURNING r.token
)
SELECT EXISTS (SELECT FROM claimed)::boolean AS claimed, EXISTS (SELECT FROM begun)::boolean AS begun;

-- name: EndRun :execrows
-- Writes down how a run ended, if nobody has claimed the fence since.
WITH newest AS (
    SELECT f.token
    FROM fences f
    WHERE f.key = @fence::text AND f.token = @token::bigint
    FOR SHARE OF f
)
UPDATE job_runs r
SET ended_at = clock_timestamp(), outcome = @outcome::text, rows = @rows::bigint, error = @error::text
FROM newest n
WHERE r.job = @job::text AND r.scheduled_at = @scheduled_at::timestamptz AND r.token = n.token AND r.ended_at IS NULL;

-- name: PruneRuns :execrows
-- Forgets all but the last runs of a job.
DELETE FROM job_runs r
WHERE r.job = @job::text AND r.scheduled_at <= (
    SELECT k.scheduled_at
    FROM job_runs k
    WHERE k.job = @job::text
    ORDER BY k.scheduled_at DESC
    OFFSET @keep::integer
    LIMIT 1
);

-- name: ListRuns :many
-- The last runs of a job, the latest tick first.
SELECT r.job, r.scheduled_at, r.started_at, r.ended_at, r.token, r.runner, r.attempts, r.outcome, r.rows, r.error
FROM job_runs r
WHERE r.job = @job::text
ORDER BY r.scheduled_at DESC
LIMIT @row_limit::integer;
