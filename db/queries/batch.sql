-- name: WriteBatch :one
-- Writes one decided batch, whole or not at all: locks the items and deductions it rests on, in order, if
-- each still has the version it was decided on (and, for a hold, is on the right side of its expiry by this
-- clock); only if all are, everything is written. One statement, so one round trip and one commit.
-- A zero id stands for none.
WITH item_change AS (
    SELECT *
    FROM ROWS FROM (
        unnest(@item_ids::bigint[]), unnest(@item_versions::bigint[]),
        unnest(@item_on_hand::bigint[]), unnest(@item_held::bigint[]), unnest(@item_steps::bigint[])
    ) AS c(id, version, on_hand, held, steps)
), deduction_change AS (
    SELECT *
    FROM ROWS FROM (
        unnest(@change_ids::uuid[]), unnest(@change_revisions::integer[]), unnest(@change_guards::text[]),
        unnest(@change_states::text[]), unnest(@change_holds::interval[])
    ) AS c(id, revision, guard, state, hold)
), locked_item AS (
    SELECT i.id
    FROM item_change c
    JOIN items i ON i.id = c.id AND i.version = c.version
    ORDER BY i.id
    FOR UPDATE OF i
), locked_deduction AS (
    SELECT d.id
    FROM deduction_change c
    JOIN deductions d ON d.id = c.id AND d.revision = c.revision
        AND CASE c.guard
            WHEN 'live' THEN d.expires_at > clock_timestamp()
            WHEN 'due' THEN d.expires_at <= clock_timestamp()
            ELSE true
        END
    ORDER BY d.id
    FOR UPDATE OF d
), verdict AS MATERIALIZED (
    SELECT CASE
        WHEN (SELECT count(*) FROM locked_item) <> COALESCE(cardinality(@item_ids::bigint[]), 0) THEN false
        ELSE (SELECT count(*) FROM locked_deduction) = COALESCE(cardinality(@change_ids::uuid[]), 0)
    END AS as_seen
), changed_item AS (
    UPDATE items i
    SET on_hand = c.on_hand, held = c.held, version = c.version + c.steps, updated_at = now()
    FROM item_change c
    WHERE i.id = c.id AND (SELECT as_seen FROM verdict)
), changed_deduction AS (
    UPDATE deductions d
    SET state = c.state,
        revision = c.revision + 1,
        updated_at = now(),
        expires_at = COALESCE(now() + c.hold, d.expires_at)
    FROM deduction_change c
    WHERE d.id = c.id AND (SELECT as_seen FROM verdict)
), changed_line AS (
    UPDATE deduction_lines l
    SET held = c.held, committed = c.committed, returned = c.returned
    FROM ROWS FROM (
        unnest(@line_change_ids::uuid[]), unnest(@line_change_nos::integer[]), unnest(@line_change_held::bigint[]),
        unnest(@line_change_committed::bigint[]), unnest(@line_change_returned::bigint[])
    ) AS c(id, line_no, held, committed, returned)
    WHERE l.deduction_id = c.id AND l.line_no = c.line_no AND (SELECT as_seen FROM verdict)
), new_operation AS (
    INSERT INTO operations (client, key, fingerprint, deduction_id, item_id, version, at, kind)
    SELECT o.client, o.key, o.fingerprint, NULLIF(o.deduction_id, '00000000-0000-0000-0000-000000000000'),
        NULLIF(o.item_id, 0), NULLIF(o.version, 0), now(), o.kind
    FROM ROWS FROM (
        unnest(@op_clients::text[]), unnest(@op_keys::text[]), unnest(@op_fingerprints::bytea[]),
        unnest(@op_deductions::uuid[]), unnest(@op_items::bigint[]), unnest(@op_versions::bigint[]), unnest(@op_kinds::text[])
    ) AS o(client, key, fingerprint, deduction_id, item_id, version, kind)
    WHERE (SELECT as_seen FROM verdict)
), new_deduction AS (
    INSERT INTO deductions (id, created_at, updated_at, expires_at, state, client, order_id, part, number, customer, customer_limit)
    SELECT d.id, now(), now(),
        now() + d.hold,
        d.state,
        d.client, d.order_id, d.part, d.number, NULLIF(d.customer, ''), NULLIF(d.customer_limit, 0)
    FROM ROWS FROM (
        unnest(@deduction_ids::uuid[]), unnest(@deduction_holds::interval[]), unnest(@deduction_states::text[]), unnest(@deduction_clients::text[]),
        unnest(@deduction_orders::text[]), unnest(@deduction_parts::text[]), unnest(@deduction_numbers::bigint[]),
        unnest(@deduction_customers::text[]), unnest(@deduction_limits::bigint[])
    ) AS d(id, hold, state, client, order_id, part, number, customer, customer_limit)
    WHERE (SELECT as_seen FROM verdict)
), new_line AS (
    INSERT INTO deduction_lines (deduction_id, item_id, quantity, held, committed, line_no, line_id, missing, request_line)
    SELECT l.deduction_id, l.item_id, l.quantity, l.held, l.committed, l.line_no, l.line_id, NULLIF(l.missing, 0),
        NULLIF(l.request_line, l.line_no)
    FROM ROWS FROM (
        unnest(@line_deductions::uuid[]), unnest(@line_items::bigint[]), unnest(@line_quantities::bigint[]), unnest(@line_held::bigint[]),
        unnest(@line_committed::bigint[]), unnest(@line_nos::integer[]), unnest(@line_ids::text[]),
        unnest(@line_missing::bigint[]), unnest(@line_requests::integer[])
    ) AS l(deduction_id, item_id, quantity, held, committed, line_no, line_id, missing, request_line)
    WHERE (SELECT as_seen FROM verdict)
), counted AS (
    INSERT INTO customer_units AS u (item_id, units, client, customer)
    SELECT c.item_id, c.units, c.client, c.customer
    FROM ROWS FROM (
        unnest(@count_items::bigint[]), unnest(@count_units::bigint[]), unnest(@count_clients::text[]), unnest(@count_customers::text[])
    ) AS c(item_id, units, client, customer)
    WHERE (SELECT as_seen FROM verdict)
    ON CONFLICT (item_id, client, customer) DO UPDATE SET units = EXCLUDED.units
), new_movement AS (
    INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, deduction_id, kind, actor, reason, reference)
    SELECT m.item_id, m.version, m.delta_on_hand, m.delta_held, m.on_hand, m.held, now(),
        NULLIF(m.deduction_id, '00000000-0000-0000-0000-000000000000'), m.kind, m.actor, m.reason, m.reference
    FROM ROWS FROM (
        unnest(@movement_items::bigint[]), unnest(@movement_versions::bigint[]), unnest(@movement_delta_on_hand::bigint[]),
        unnest(@movement_delta_held::bigint[]), unnest(@movement_on_hand::bigint[]), unnest(@movement_held::bigint[]),
        unnest(@movement_deductions::uuid[]), unnest(@movement_kinds::text[]), unnest(@movement_actors::text[]),
        unnest(@movement_reasons::text[]), unnest(@movement_references::text[])
    ) AS m(item_id, version, delta_on_hand, delta_held, on_hand, held, deduction_id, kind, actor, reason, reference)
    WHERE (SELECT as_seen FROM verdict)
), new_event AS (
    INSERT INTO events (item_id, version, on_hand, held, safety_stock, low_stock_at, at, kind)
    SELECT e.item_id, e.version, e.on_hand, e.held, e.safety_stock, e.low_stock_at, now(), e.kind
    FROM ROWS FROM (
        unnest(@event_items::bigint[]), unnest(@event_versions::bigint[]), unnest(@event_on_hand::bigint[]),
        unnest(@event_held::bigint[]), unnest(@event_safety_stock::bigint[]), unnest(@event_low_stock_at::bigint[]),
        unnest(@event_kinds::text[])
    ) AS e(item_id, version, on_hand, held, safety_stock, low_stock_at, kind)
    WHERE (SELECT as_seen FROM verdict)
)
SELECT as_seen::boolean AS as_seen, now()::timestamptz AS at
FROM verdict;

-- name: WriteDeducts :one
-- WriteBatch for a batch of nothing but new deductions, which is what a rush consists of: half the arrays, and
-- no table touched that such a batch does not need. A movement has the place of its line. A batch with an event
-- is for WriteBatch.
WITH item_change AS (
    SELECT *
    FROM ROWS FROM (
        unnest(@item_ids::bigint[]), unnest(@item_versions::bigint[]),
        unnest(@item_on_hand::bigint[]), unnest(@item_held::bigint[]), unnest(@item_steps::bigint[])
    ) AS c(id, version, on_hand, held, steps)
), locked_item AS (
    SELECT i.id
    FROM item_change c
    JOIN items i ON i.id = c.id AND i.version = c.version
    ORDER BY i.id
    FOR UPDATE OF i
), verdict AS MATERIALIZED (
    SELECT (SELECT count(*) FROM locked_item) = cardinality(@item_ids::bigint[]) AS as_seen
), deduction AS MATERIALIZED (
    SELECT *
    FROM ROWS FROM (
        unnest(@deduction_ids::uuid[]), unnest(@deduction_holds::interval[]), unnest(@clients::text[]), unnest(@keys::text[]),
        unnest(@fingerprints::bytea[]), unnest(@orders::text[]), unnest(@parts::text[]), unnest(@numbers::bigint[])
    ) AS d(id, hold, client, key, fingerprint, order_id, part, number)
    WHERE (SELECT as_seen FROM verdict)
), line AS MATERIALIZED (
    SELECT *
    FROM ROWS FROM (
        unnest(@line_deductions::uuid[]), unnest(@line_items::bigint[]), unnest(@line_quantities::bigint[]),
        unnest(@line_held::bigint[]), unnest(@line_nos::integer[]), unnest(@line_ids::text[]),
        unnest(@movement_versions::bigint[]), unnest(@movement_on_hand::bigint[]), unnest(@movement_held::bigint[])
    ) AS l(deduction_id, item_id, quantity, held, line_no, line_id, version, on_hand_after, held_after)
    WHERE (SELECT as_seen FROM verdict)
), changed_item AS (
    UPDATE items i
    SET on_hand = c.on_hand, held = c.held, version = c.version + c.steps, updated_at = now()
    FROM item_change c
    WHERE i.id = c.id AND (SELECT as_seen FROM verdict)
), new_operation AS (
    INSERT INTO operations (client, key, fingerprint, deduction_id, at, kind)
    SELECT d.client, d.key, d.fingerprint, d.id, now(), 'deduct'
    FROM deduction d
), new_deduction AS (
    INSERT INTO deductions (id, created_at, updated_at, expires_at, state, client, order_id, part, number)
    SELECT d.id, now(), now(), now() + d.hold, CASE WHEN d.hold IS NULL THEN 'committed' ELSE 'held' END,
        d.client, d.order_id, d.part, d.number
    FROM deduction d
), new_line AS (
    INSERT INTO deduction_lines (deduction_id, item_id, quantity, held, committed, line_no, line_id)
    SELECT l.deduction_id, l.item_id, l.quantity, l.held, l.quantity - l.held, l.line_no, l.line_id
    FROM line l
), new_movement AS (
    INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, deduction_id, kind)
    SELECT l.item_id, l.version, l.held - l.quantity, l.held, l.on_hand_after, l.held_after, now(), l.deduction_id,
        CASE WHEN l.held = 0 THEN 'deduct' ELSE 'hold' END
    FROM line l
)
SELECT as_seen::boolean AS as_seen, now()::timestamptz AS at
FROM verdict;

-- name: WriteOne :one
-- Writes a batch of one deduction of one line: WriteDeducts without its arrays, at half the time.
WITH changed_item AS (
    UPDATE items i
    SET on_hand = @on_hand::bigint, held = @held::bigint, version = i.version + 1, updated_at = now()
    WHERE i.id = @item_id::bigint AND i.version = @seen_version::bigint
    RETURNING i.id, i.version
), new_operation AS (
    INSERT INTO operations (client, key, fingerprint, deduction_id, at, kind)
    SELECT @client::text, @key::text, @fingerprint::bytea, @deduction_id::uuid, now(), 'deduct'
    FROM changed_item c
), new_deduction AS (
    INSERT INTO deductions (id, created_at, updated_at, expires_at, state, client, order_id, part, number)
    SELECT @deduction_id::uuid, now(), now(), now() + sqlc.narg(hold)::interval,
        @state::text, @client::text, @order_id::text, @part::text, @number::bigint
    FROM changed_item c
), new_line AS (
    INSERT INTO deduction_lines (deduction_id, item_id, quantity, held, committed, line_no, line_id)
    SELECT @deduction_id::uuid, c.id, @quantity::bigint, @line_held::bigint, @line_committed::bigint, 1, @line_id::text
    FROM changed_item c
), new_movement AS (
    INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, deduction_id, kind)
    SELECT c.id, c.version, @delta_on_hand::bigint, @delta_held::bigint, @on_hand::bigint, @held::bigint, now(),
        @deduction_id::uuid, @movement_kind::text
    FROM changed_item c
)
SELECT EXISTS (SELECT 1 FROM changed_item c)::boolean AS as_seen, now()::timestamptz AS at;
