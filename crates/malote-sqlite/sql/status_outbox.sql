-- How the outbox stands behind the relay that is furthest behind: everything is pending where there is
-- none yet. NOT MATERIALIZED: it is read as far as it is counted. Above $1 rows it is not counted any
-- further. Positions have no holes here but those of rows that were removed, and none is removed before
-- it is published. The janitor's lease is in the same table and has come nowhere.
WITH cursor AS (SELECT high, gaps FROM malote_relay WHERE name NOT LIKE 'janitor %' ORDER BY high LIMIT 1),
relay AS (
    SELECT coalesce((SELECT high FROM cursor), 0) AS high, coalesce((SELECT gaps FROM cursor), '[]') AS gaps),
pending AS NOT MATERIALIZED (
    SELECT o.seq, o.created_at, o.type, coalesce(o.key, o.aggregate_id, o.id) AS key
      FROM relay, json_each(relay.gaps) AS gap
     CROSS JOIN malote_outbox AS o ON o.seq BETWEEN gap.value ->> 0 AND gap.value ->> 1
    UNION ALL
    SELECT o.seq, o.created_at, o.type, coalesce(o.key, o.aggregate_id, o.id)
      FROM relay CROSS JOIN malote_outbox AS o ON o.seq > relay.high)
SELECT (SELECT count(*) FROM (SELECT 1 FROM pending LIMIT $1)) AS pending,
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'malote_outbox'), 0) AS last,
       (SELECT high FROM relay) AS high,
       (SELECT coalesce(sum((gap.value ->> 1) - (gap.value ->> 0) + 1), 0) FROM relay, json_each(relay.gaps) AS gap) AS gaps,
       (SELECT now FROM malote_clock) - first.created_at AS age, first.type, first.key
  FROM (SELECT 1) LEFT JOIN (SELECT * FROM pending LIMIT 1) AS first ON true
