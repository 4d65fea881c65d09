-- How the outbox stands: rows in the gaps of the cursor that is the furthest, and above it. Counted up to $1.
WITH cursor AS MATERIALIZED (
    SELECT coalesce(r.high, 0) AS high, coalesce(r.gaps, '{}') AS gaps
      FROM (SELECT) AS one
      LEFT JOIN (SELECT high, gaps FROM malote.relay ORDER BY high DESC LIMIT 1) AS r ON true
), pending AS MATERIALIZED (
    SELECT p.seq
      FROM cursor c
     CROSS JOIN LATERAL (
        (SELECT i.seq
           FROM unnest(c.gaps) AS gap
          CROSS JOIN LATERAL (SELECT o.seq FROM malote.outbox o
                               WHERE o.seq BETWEEN lower(gap) AND upper(gap) - 1 ORDER BY o.seq LIMIT $1) AS i
          LIMIT $1)
        UNION ALL
        (SELECT o.seq FROM malote.outbox o WHERE o.seq > c.high ORDER BY o.seq LIMIT $1)
     ) AS p
), oldest AS (
    SELECT o.type, coalesce(o.key, o.aggregate_id, o.id::text) AS key, o.created_at
      FROM malote.outbox o WHERE o.seq = (SELECT min(seq) FROM pending)
)
SELECT (SELECT count(*) FROM pending) AS counted, c.high, handed_out.last,
       (SELECT coalesce(sum(upper(gap) - lower(gap)), 0)::int8 FROM unnest(c.gaps) AS gap) AS gaps,
       oldest.type, oldest.key,
       CASE WHEN oldest.created_at IS NOT NULL
            THEN greatest(0, extract(epoch FROM malote.clock() - oldest.created_at))::float8 END AS oldest_seconds
  FROM cursor c
 CROSS JOIN (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM malote.outbox_seq_seq) AS handed_out
  LEFT JOIN oldest ON true
