-- +goose Up

-- Leases, sessions and fencing tokens of internal/lock. Rows are never deleted: their number is that of the keys
-- ever locked, and a row that stays is what makes two first acquires of a key meet.

CREATE SEQUENCE lock_token_number AS bigint;

-- A fencing token: the number of the WAL timeline, then a sequence. The sequence alone would be enough but for a
-- failover to a standby that had not received its last steps; the promotion begins a new timeline, so what is drawn
-- after it is greater than all that was drawn before.
-- +goose StatementBegin
CREATE FUNCTION lock_next_token() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
  SELECT (('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint << 40)
       + nextval('lock_token_number')
$$;
-- +goose StatementEnd

-- The lease of each key.
CREATE TABLE lock_lease (
    key        text PRIMARY KEY,
    grant_id   text,                       -- NULL when free
    owner      text NOT NULL DEFAULT '',   -- host pid grant time meta
    token      bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL        -- on this server's clock; -infinity when free
);

-- Grants that were given up while a request of theirs may have been on its way.
CREATE TABLE lock_given_up (
    grant_id text PRIMARY KEY,
    until    timestamptz NOT NULL
);

-- Who held the advisory lock of each key last; whether it still does is in pg_locks.
CREATE TABLE lock_session (
    key   text PRIMARY KEY,
    owner text NOT NULL,
    token bigint NOT NULL,
    pid   integer NOT NULL,
    ttl   interval NOT NULL
);

-- The token drawn last for each key whose lease is kept elsewhere, and for which hold.
CREATE TABLE lock_hold (
    key   text PRIMARY KEY,
    hold  text NOT NULL,
    token bigint NOT NULL
);

-- The newest holder of each key that the ledger's guarded writes ask for: claimed before the first of them, compared
-- and locked against a newer claim in the transaction of each. Whose token is older, or whose time is over by this
-- server's clock, writes nothing.
CREATE TABLE fences (
    token   bigint      NOT NULL,
    ends_at timestamptz NOT NULL,
    key     text COLLATE "C" PRIMARY KEY
);

-- What each job did. One row a tick: whoever comes second finds it there.
CREATE TABLE job_runs (
    scheduled_at timestamptz NOT NULL,
    started_at   timestamptz NOT NULL,
    ended_at     timestamptz,            -- NULL: under way, or abandoned, then the next holder takes it over
    token        bigint      NOT NULL,   -- of whoever began it, or took it over last
    rows         bigint      NOT NULL DEFAULT 0,
    attempts     integer     NOT NULL DEFAULT 1,
    job          text COLLATE "C" NOT NULL,
    runner       text        NOT NULL,
    outcome      text        NOT NULL DEFAULT 'running',
    error        text        NOT NULL DEFAULT '',
    CONSTRAINT job_runs_pkey PRIMARY KEY (job, scheduled_at),
    CONSTRAINT job_runs_outcome_known CHECK (outcome IN ('running', 'done', 'failed')),
    CONSTRAINT job_runs_ended_has_outcome CHECK ((ended_at IS NULL) = (outcome = 'running'))
);

-- Days, in UTC, whose settlement is complete.
CREATE TABLE settled_days (
    day        date        PRIMARY KEY,
    settled_at timestamptz NOT NULL,
    token      bigint      NOT NULL,
    items      bigint      NOT NULL
);

-- What moved on an item in a day; no row for a day without movements. A day ends at a version of the item, so that
-- what one day closes with is what the next one opens with.
CREATE TABLE settlements (
    day       date   NOT NULL,
    item_id   bigint NOT NULL,
    version   bigint NOT NULL,   -- the last movement of the day
    opening   bigint NOT NULL,
    received  bigint NOT NULL,
    deducted  bigint NOT NULL,
    returned  bigint NOT NULL,
    adjusted  bigint NOT NULL,   -- by adjustments and counts; may be negative
    closing   bigint NOT NULL,
    CONSTRAINT settlements_pkey PRIMARY KEY (day, item_id),
    CONSTRAINT settlements_item_version_key UNIQUE (item_id, version),
    CONSTRAINT settlements_add_up CHECK (opening + received - deducted + returned + adjusted = closing),
    CONSTRAINT settlements_not_negative CHECK (opening >= 0 AND received >= 0 AND deducted >= 0 AND returned >= 0 AND closing >= 0)
);

-- Counts of an item that were opened. A row never changes: a count is complete when the key it would be completed
-- under has had its effect, and over when its item's fence says so.
CREATE TABLE stocktakes (
    id         uuid        PRIMARY KEY,
    item_id    bigint      NOT NULL,
    token      bigint      NOT NULL,
    version    bigint      NOT NULL,   -- of the item when the count was opened
    on_hand    bigint      NOT NULL,
    opened_at  timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    client     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    reference  text        NOT NULL DEFAULT '',
    CONSTRAINT stocktakes_client_key_key UNIQUE (client, key),
    CONSTRAINT stocktakes_item_token_key UNIQUE (item_id, token)
);

-- +goose Down
DROP TABLE stocktakes;
DROP TABLE settlements;
DROP TABLE settled_days;
DROP TABLE job_runs;
DROP TABLE fences;
DROP TABLE lock_hold;
DROP TABLE lock_session;
DROP TABLE lock_given_up;
DROP TABLE lock_lease;
DROP FUNCTION lock_next_token();
DROP SEQUENCE lock_token_number;
