-- +goose NO TRANSACTION
-- +goose Up

-- The next number of each series that is given out in blocks: one update takes a block.
CREATE TABLE IF NOT EXISTS number_series (
    next bigint NOT NULL DEFAULT 1,
    name text   PRIMARY KEY,
    CONSTRAINT number_series_next_in_range CHECK (next BETWEEN 1 AND 9007199254740992)
);
INSERT INTO number_series (name) VALUES ('deduction') ON CONFLICT DO NOTHING;

-- The workers of snowflakes, and up to which millisecond each has been given out.
CREATE TABLE IF NOT EXISTS number_workers (
    used_until bigint   NOT NULL DEFAULT 0,
    worker     smallint PRIMARY KEY,
    owner      text     NOT NULL DEFAULT '',
    CONSTRAINT number_workers_worker_in_range CHECK (worker BETWEEN 0 AND 31)
);
INSERT INTO number_workers (worker) SELECT generate_series(0, 31) ON CONFLICT DO NOTHING;

-- What people call a deduction. Deductions of before have none, so the index starts empty and is built without
-- keeping anybody from writing.
ALTER TABLE deductions ADD COLUMN IF NOT EXISTS number bigint;
DROP INDEX IF EXISTS deductions_number_key;
CREATE UNIQUE INDEX CONCURRENTLY deductions_number_key ON deductions (number) WHERE number IS NOT NULL;

-- +goose Down
DROP INDEX deductions_number_key;
ALTER TABLE deductions DROP COLUMN number;
DROP TABLE number_workers;
DROP TABLE number_series;
