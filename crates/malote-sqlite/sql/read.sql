-- Reads a window of the outbox: the rows in the gaps $1 = [[from, to], …] and those above $2, by
-- position, at most $3. One statement, so one snapshot; each branch walks the primary key and stops
-- early. The cast lets a row in that was written by hand with text where the bytes belong.
WITH wanted AS (
    SELECT * FROM (
        SELECT o.* FROM json_each($1) AS gap
         CROSS JOIN malote_outbox AS o ON o.seq BETWEEN gap.value ->> 0 AND gap.value ->> 1
         ORDER BY o.seq LIMIT $3)
    UNION ALL
    SELECT * FROM (SELECT o.* FROM malote_outbox AS o WHERE o.seq > $2 ORDER BY o.seq LIMIT $3)
)
SELECT seq, id, type, topic, coalesce(key, aggregate_id) AS key, headers, CAST(payload AS BLOB) AS payload, created_at
  FROM wanted ORDER BY seq LIMIT $3
