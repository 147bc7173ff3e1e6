-- +goose Up

-- What an order took or holds. `revision` is the optimistic lock of the deduction's own state.
CREATE TABLE deductions (
    id         uuid        PRIMARY KEY,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    expires_at timestamptz,
    revision   integer     NOT NULL DEFAULT 1,
    state      text        NOT NULL,
    client     text COLLATE "C" NOT NULL,
    order_id   text COLLATE "C" NOT NULL,
    part       text COLLATE "C" NOT NULL,
    CONSTRAINT deductions_held_expires CHECK (state <> 'held' OR expires_at IS NOT NULL)
) WITH (fillfactor = 90);

-- One live deduction an order part.
CREATE UNIQUE INDEX deductions_live_key ON deductions (client, order_id, part)
    WHERE state IN ('held', 'committed');

-- The others, to list an order's history; a deduction enters only when it ends.
CREATE INDEX deductions_ended_idx ON deductions (client, order_id)
    WHERE state NOT IN ('held', 'committed');

CREATE INDEX deductions_due_idx ON deductions (expires_at) WHERE state = 'held';

-- quantity = held + committed + what was released or expired.
CREATE TABLE deduction_lines (
    deduction_id uuid    NOT NULL,
    item_id      bigint  NOT NULL,
    quantity     bigint  NOT NULL,
    held         bigint  NOT NULL,
    committed    bigint  NOT NULL,
    returned     bigint  NOT NULL DEFAULT 0,
    line_no      integer NOT NULL,
    line_id      text    NOT NULL,
    CONSTRAINT deduction_lines_pkey PRIMARY KEY (deduction_id, line_no),
    CONSTRAINT deduction_lines_add_up
        CHECK (held >= 0 AND returned >= 0 AND returned <= committed AND held + committed <= quantity)
) WITH (fillfactor = 90);

-- Who holds an item: only lines of open holds are in it.
CREATE INDEX deduction_lines_held_idx ON deduction_lines (item_id) WHERE held > 0;

-- +goose Down
DROP TABLE deduction_lines;
DROP TABLE deductions;
