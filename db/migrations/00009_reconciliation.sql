-- +goose Up

-- Up to which version the movements of an item were added up and found right, and what they came to there. The
-- next check goes on from it, so that none reads an item's whole history again.
CREATE TABLE checked_items (
    item_id bigint PRIMARY KEY,
    version bigint NOT NULL,
    on_hand bigint NOT NULL,
    held    bigint NOT NULL
) WITH (fillfactor = 70);

-- Where the continuous check is. It walks over all items and then over all idempotency keys, in pages: a round.
-- Steps may be made by different processes, one after the other or at once.
CREATE TABLE reconciliation (
    only_row        boolean     PRIMARY KEY DEFAULT true,
    item_id         bigint      NOT NULL DEFAULT 0,
    items_done      boolean     NOT NULL DEFAULT false,
    client          text COLLATE "C" NOT NULL DEFAULT '',
    key             text COLLATE "C" NOT NULL DEFAULT '',
    began_at        timestamptz NOT NULL DEFAULT now(),
    items           bigint      NOT NULL DEFAULT 0,
    movements       bigint      NOT NULL DEFAULT 0,
    keys            bigint      NOT NULL DEFAULT 0,
    last_began_at   timestamptz,
    last_ended_at   timestamptz,
    last_items      bigint      NOT NULL DEFAULT 0,
    last_movements  bigint      NOT NULL DEFAULT 0,
    last_keys       bigint      NOT NULL DEFAULT 0,
    CONSTRAINT reconciliation_only_row CHECK (only_row)
);
INSERT INTO reconciliation DEFAULT VALUES;

-- What the continuous check found broken and has not seen whole since.
CREATE TABLE findings (
    found_at timestamptz NOT NULL,
    seen_at  timestamptz NOT NULL,
    repaired boolean     NOT NULL,
    rule     text COLLATE "C" NOT NULL,
    subject  text COLLATE "C" NOT NULL,
    evidence text[]      NOT NULL,
    CONSTRAINT findings_pkey PRIMARY KEY (rule, subject)
);

-- +goose Down
DROP TABLE findings;
DROP TABLE reconciliation;
DROP TABLE checked_items;
