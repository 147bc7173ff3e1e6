-- +goose Up

-- Files that archived movements were written to. `bytes` is how much of a file belongs to movements that are gone from the
-- ledger: it is written by the transaction that deletes them, so what a file has beyond it was not carried out.
CREATE TABLE archives (
    name       text COLLATE "C" PRIMARY KEY,
    bytes      bigint      NOT NULL DEFAULT 0,
    movements  bigint      NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE archives;
