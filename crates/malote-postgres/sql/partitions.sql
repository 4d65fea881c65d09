-- The partitions of $1 (`outbox` or `inbox`) with a lower and an upper bound, in that order; the DEFAULT
-- partition has none. `bytes` tells whether there may be rows without looking at them (NULL: dropped in this instant).
SELECT c.relname AS name, bound.ends[1] AS first, bound.ends[2] AS beyond, coalesce(pg_relation_size(c.oid), 0) AS bytes
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
 CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)') AS bound (ends)
 WHERE i.inhparent = CASE $1 WHEN 'outbox' THEN 'malote.outbox'::regclass ELSE 'malote.inbox'::regclass END AND bound.ends IS NOT NULL
 ORDER BY length(bound.ends[1]), bound.ends[1]
