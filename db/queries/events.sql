-- name: ListEvents :many
-- Lists events behind a place, in the order in which a reader sees them: none appears before a place that was
-- listed already. What a transaction that is still running might come before is not listed yet.
SELECT e.epoch, e.tx, e.item_id, e.version, e.on_hand, e.held, e.safety_stock, e.low_stock_at, e.at, e.kind, i.sku, i.location
FROM events e
JOIN items i ON i.id = e.item_id
WHERE (e.epoch, e.tx, e.item_id, e.version) > (@after_epoch::integer, @after_tx::bigint, @after_item::bigint, @after_version::bigint)
    AND (e.epoch < @epoch::integer OR e.tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
    AND (@location::text = '' OR i.location = @location::text)
ORDER BY e.epoch, e.tx, e.item_id, e.version
LIMIT @row_limit;
