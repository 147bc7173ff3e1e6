-- Leases, sessions and fencing tokens. Rows are never deleted: their number is that of the keys ever locked, and a
-- row that stays is what makes two first acquires of a key meet.

CREATE SEQUENCE IF NOT EXISTS lock_token_number AS bigint;

-- A fencing token: the number of the WAL timeline, then a sequence. The sequence alone would be enough but for a
-- failover to a standby that had not received its last steps; the promotion begins a new timeline, so what is drawn
-- after it is greater than all that was drawn before.
CREATE OR REPLACE FUNCTION lock_next_token() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
  SELECT (('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint << 40)
       + nextval('lock_token_number')
$$;

-- The lease of each key.
CREATE TABLE IF NOT EXISTS lock_lease (
  key        text PRIMARY KEY,
  grant_id   text,                       -- NULL when free
  owner      text NOT NULL DEFAULT '',   -- host pid grant time meta
  token      bigint NOT NULL DEFAULT 0,
  expires_at timestamptz NOT NULL        -- on this server's clock; -infinity when free
);

-- Grants that were given up while a request of theirs may have been on its way.
CREATE TABLE IF NOT EXISTS lock_given_up (
  grant_id text PRIMARY KEY,
  until    timestamptz NOT NULL
);

-- Who held the advisory lock of each key last; whether it still does is in pg_locks.
CREATE TABLE IF NOT EXISTS lock_session (
  key   text PRIMARY KEY,
  owner text NOT NULL,
  token bigint NOT NULL,
  pid   integer NOT NULL,
  ttl   interval NOT NULL
);

-- The token drawn last for each key whose lease is kept elsewhere, and for which hold.
CREATE TABLE IF NOT EXISTS lock_hold (
  key   text PRIMARY KEY,
  hold  text NOT NULL,
  token bigint NOT NULL
);
