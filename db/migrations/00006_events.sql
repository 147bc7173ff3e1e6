-- +goose Up

-- What others want to hear of: written by the statement that made it true, read in the order of the index below.
-- An event belongs to one movement, so (item, version) names it for good and it cannot be there twice.
-- tx is the transaction that wrote it: identity values would commit out of order, and a reader that had seen 8 would
-- never see 7. Of finished transactions there is none below the oldest one running, so whoever reads only below that
-- one skips nothing. Numbers of transactions may be given again after a failover; epoch (the WAL timeline) goes up then.
CREATE TABLE events (
    item_id      bigint      NOT NULL,
    version      bigint      NOT NULL,
    on_hand      bigint      NOT NULL,
    held         bigint      NOT NULL,
    safety_stock bigint      NOT NULL,
    low_stock_at bigint      NOT NULL,
    tx           bigint      NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    at           timestamptz NOT NULL,
    epoch        integer     NOT NULL DEFAULT (('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer),
    kind         text        NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (item_id, version)
);

CREATE INDEX events_order_idx ON events (epoch, tx, item_id, version);

-- +goose Down
DROP TABLE events;
