-- +goose Up

-- What a customer has of an item: units held or committed and not returned, over all his deductions. It changes
-- only with a movement of the item, in the same statement, so the item's version guards it too. A customer is a
-- name that a client gave: two clients' customers are different ones.
CREATE TABLE customer_units (
    item_id  bigint NOT NULL,
    units    bigint NOT NULL,
    client   text COLLATE "C" NOT NULL,
    customer text COLLATE "C" NOT NULL,
    CONSTRAINT customer_units_pkey PRIMARY KEY (item_id, client, customer),
    CONSTRAINT customer_units_not_negative CHECK (units >= 0)
) WITH (fillfactor = 70);

-- Null: nobody was named, and no limit was set. The limit is kept for a hold that is taken anew.
ALTER TABLE deductions
    ADD COLUMN customer text COLLATE "C",
    ADD COLUMN customer_limit bigint;

-- missing is what was asked for beyond quantity, which is what was granted; null: nothing. request_line is the line of
-- the request that this one serves, where several do and the numbers differ; null: line_no. Both are null but for
-- a few.
ALTER TABLE deduction_lines
    ADD COLUMN missing bigint,
    ADD COLUMN request_line integer;

-- +goose Down
ALTER TABLE deduction_lines
    DROP COLUMN missing,
    DROP COLUMN request_line;
ALTER TABLE deductions
    DROP COLUMN customer,
    DROP COLUMN customer_limit;
DROP TABLE customer_units;
