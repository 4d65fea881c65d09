-- Reads a window of the outbox: the rows in the gaps $2..$3 and those above $1, by position, at most $4.
--
-- ONE statement, so one snapshot: with two, a row could commit between them, be too late for the one
-- and hidden from the other, and a gap be closed over it. The same snapshot says below which id every
-- transaction has ended. The LEFT JOIN gives that answer when there are no rows, too.
--
-- Each branch has its own ORDER BY and LIMIT, so each is a walk along the primary key that stops
-- early, and the outer ORDER BY merges two sorted streams; only rows found in gaps are ever sorted.
WITH snapshot AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8 AS ended_below)
SELECT s.ended_below, r.seq, r.id, r.type, r.topic, r.key, r.headers, r.payload, r.created_at, current_database() AS source
  FROM snapshot s
  LEFT JOIN LATERAL (
    (SELECT i.seq, i.id, i.type, i.topic, coalesce(i.key, i.aggregate_id) AS key, i.headers, i.payload, i.created_at
       FROM unnest($2::int8[], $3::int8[]) AS gap (first, last)
      CROSS JOIN LATERAL (SELECT * FROM malote.outbox o
                           WHERE o.seq BETWEEN gap.first AND gap.last ORDER BY o.seq LIMIT $4) AS i
      ORDER BY i.seq LIMIT $4)
    UNION ALL
    (SELECT o.seq, o.id, o.type, o.topic, coalesce(o.key, o.aggregate_id) AS key, o.headers, o.payload, o.created_at
       FROM malote.outbox o
      WHERE o.seq > $1 ORDER BY o.seq LIMIT $4)
    ORDER BY 1 LIMIT $4
  ) AS r ON true
