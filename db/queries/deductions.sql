-- name: FindOperations :many
-- Which of the keys have had their effect, and what it was.
SELECT o.client, o.key, o.fingerprint, o.deduction_id, o.item_id, o.version, o.at, o.kind,
    COALESCE(i.sku, '')::text AS sku, COALESCE(i.location, '')::text AS location
FROM ROWS FROM (unnest(@clients::text[]), unnest(@keys::text[])) AS n(client, key)
JOIN operations o ON o.client = n.client AND o.key = n.key
LEFT JOIN items i ON i.id = o.item_id;

-- name: FindLive :many
-- Which of the order parts have a live deduction.
SELECT d.id, d.client, d.order_id, d.part
FROM ROWS FROM (unnest(@clients::text[]), unnest(@orders::text[]), unnest(@parts::text[])) AS n(client, order_id, part)
JOIN deductions d ON d.client = n.client AND d.order_id = n.order_id AND d.part = n.part
    AND d.state IN ('held', 'committed');

-- name: ReadCustomerUnits :many
-- What customers have of the named items; where they never had anything a row is missing.
SELECT u.client, u.customer, u.units, i.sku, i.location
FROM ROWS FROM (
    unnest(@skus::text[]), unnest(@locations::text[]), unnest(@clients::text[]), unnest(@customers::text[])
) AS n(sku, location, client, customer)
JOIN items i ON i.sku = n.sku AND i.location = n.location
JOIN customer_units u ON u.item_id = i.id AND u.client = n.client AND u.customer = n.customer;

-- name: ReadDeductions :many
-- Reads deductions by id, a row a line, with the ledger's clock: a hold is over when its expiry is not after
-- it, whether or not it was swept.
SELECT d.id, d.client, d.order_id, d.part, d.state, d.revision, d.created_at, d.updated_at, d.expires_at,
    COALESCE(d.number, 0)::bigint AS number,
    statement_timestamp()::timestamptz AS read_at, COALESCE(d.customer, '')::text AS customer,
    COALESCE(d.customer_limit, 0)::bigint AS customer_limit,
    l.line_no, l.line_id, l.quantity, l.held, l.committed, l.returned, COALESCE(l.missing, 0)::bigint AS missing,
    COALESCE(l.request_line, l.line_no)::integer AS request_line, i.sku, i.location
FROM deductions d
JOIN deduction_lines l ON l.deduction_id = d.id
JOIN items i ON i.id = l.item_id
WHERE d.id = ANY(@ids::uuid[])
ORDER BY d.id, l.line_no;

-- name: LockDeductions :execrows
-- Locks deductions, in order, until the transaction ends.
SELECT d.id
FROM deductions d
WHERE d.id = ANY(@ids::uuid[])
ORDER BY d.id
FOR UPDATE;

-- name: ListByOrder :many
-- The deductions of one order, oldest first: the live ones and the ended ones are in an index each.
SELECT id
FROM (
    SELECT a.id
    FROM deductions a
    WHERE a.client = @client AND a.order_id = @order_id AND a.state IN ('held', 'committed')
    UNION ALL
    SELECT b.id
    FROM deductions b
    WHERE b.client = @client AND b.order_id = @order_id AND b.state NOT IN ('held', 'committed')
) AS of_order
WHERE id > @after_id::uuid
ORDER BY id
LIMIT @row_limit;

-- name: ListCurrent :many
-- Of each part of an order the deduction that counts: the live one, else the last.
SELECT DISTINCT ON (part) id
FROM (
    SELECT a.id, a.part, true AS live, a.created_at
    FROM deductions a
    WHERE a.client = @client AND a.order_id = @order_id AND a.state IN ('held', 'committed')
    UNION ALL
    SELECT b.id, b.part, false AS live, b.created_at
    FROM deductions b
    WHERE b.client = @client AND b.order_id = @order_id AND b.state NOT IN ('held', 'committed')
) AS of_order
ORDER BY part, live DESC, created_at DESC, id DESC
LIMIT @row_limit;

-- name: ListDue :many
-- Holds whose time is over by the ledger's clock, longest overdue first.
SELECT id
FROM deductions
WHERE state = 'held' AND expires_at <= clock_timestamp()
ORDER BY expires_at
LIMIT @row_limit;

-- name: ListDueOn :many
-- Holds on the named items whose time is over by the ledger's clock.
SELECT DISTINCT d.id
FROM ROWS FROM (unnest(@skus::text[]), unnest(@locations::text[])) AS n(sku, location)
JOIN items i ON i.sku = n.sku AND i.location = n.location AND i.held > 0
JOIN deduction_lines l ON l.item_id = i.id AND l.held > 0
JOIN deductions d ON d.id = l.deduction_id AND d.state = 'held' AND d.expires_at <= clock_timestamp()
LIMIT @row_limit;
