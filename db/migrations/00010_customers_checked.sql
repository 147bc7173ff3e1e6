-- +goose Up

-- What a customer has is compared with his deductions. Only those with a customer are in it.
CREATE INDEX deductions_customer_idx ON deductions (client, customer) WHERE customer IS NOT NULL;

-- The continuous check walks over what customers have between all items and all idempotency keys. While it does, item_id, client
-- and key are those of the last counter, whose customer stands for the key.
ALTER TABLE reconciliation
    ADD COLUMN customers_done boolean NOT NULL DEFAULT false,
    ADD COLUMN customers      bigint  NOT NULL DEFAULT 0,
    ADD COLUMN last_customers bigint  NOT NULL DEFAULT 0;
UPDATE reconciliation SET customers_done = items_done;

-- +goose Down
ALTER TABLE reconciliation
    DROP COLUMN customers_done,
    DROP COLUMN customers,
    DROP COLUMN last_customers;
DROP INDEX deductions_customer_idx;
