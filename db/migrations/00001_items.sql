-- +goose Up

-- One row an item: a SKU at a location. The row is the authority for what is there; `version` is the
-- optimistic lock, and the number of movements the item has had.
-- fillfactor 50 and no index on a changing column keep updates of a hot row in its page (HOT).
CREATE TABLE items (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    on_hand      bigint      NOT NULL DEFAULT 0,
    held         bigint      NOT NULL DEFAULT 0,
    safety_stock bigint      NOT NULL DEFAULT 0,
    low_stock_at bigint,
    version      bigint      NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    sku          text COLLATE "C" NOT NULL,
    location     text COLLATE "C" NOT NULL,
    label        text        NOT NULL DEFAULT '',
    CONSTRAINT items_sku_location_key UNIQUE (sku, location),
    CONSTRAINT items_on_hand_not_negative CHECK (on_hand >= 0),
    CONSTRAINT items_on_hand_within_limit CHECK (on_hand <= 9007199254740991),
    CONSTRAINT items_held_not_negative CHECK (held >= 0),
    CONSTRAINT items_held_within_on_hand CHECK (held <= on_hand),
    CONSTRAINT items_safety_stock_in_range CHECK (safety_stock BETWEEN 0 AND 9007199254740991),
    CONSTRAINT items_low_stock_at_in_range CHECK (low_stock_at BETWEEN 0 AND 9007199254740991),
    CONSTRAINT items_version_not_negative CHECK (version >= 0)
) WITH (fillfactor = 50);

-- What happened to each item, append-only. The primary key makes a version a place in a sequence
-- without gaps: two writers that read the same version cannot both append the next one.
-- It has no foreign key and no CHECK: its rows are written by the statement that writes the item's row, which
-- is checked, and a check a row would cost more than the row. An actor that is null is the deduction's client.
CREATE TABLE movements (
    item_id       bigint      NOT NULL,
    version       bigint      NOT NULL,
    delta_on_hand bigint      NOT NULL,
    delta_held    bigint      NOT NULL,
    on_hand       bigint      NOT NULL,
    held          bigint      NOT NULL,
    at            timestamptz NOT NULL,
    deduction_id  uuid,
    kind          text        NOT NULL,
    actor         text,
    reason        text        NOT NULL DEFAULT '',
    reference     text        NOT NULL DEFAULT '',
    CONSTRAINT movements_pkey PRIMARY KEY (item_id, version)
);

-- Every idempotency key that had an effect, for ever. One table for all kinds of operation, so that two
-- requests under one key meet in one unique index, whatever they ask for.
CREATE TABLE operations (
    client       text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  bytea       NOT NULL,
    deduction_id uuid,
    item_id      bigint,
    version      bigint,
    at           timestamptz NOT NULL,
    kind         text        NOT NULL,
    CONSTRAINT operations_pkey PRIMARY KEY (client, key)
);

-- +goose Down
DROP TABLE operations;
DROP TABLE movements;
DROP TABLE items;
