-- Rows of the outbox that are kept, by position. What is NULL chooses all. $1 type, $2 topic, $3 key,
-- $4 event or conversation, $5 since, $6 until, $7 whether only (1) or not (0) what is not published,
-- $8 those above this position, $9 at most so many, $10 [position, …]. A row that was written by hand may have no JSON in it.
SELECT o.seq, o.id, o.type, s.topic, s.key, o.created_at, s.payload_bytes, s.published,
       json_valid(o.headers) AS readable
  FROM malote_outbox AS o JOIN malote_outbox_status AS s ON s.seq = o.seq
 WHERE o.seq > $8
   AND ($10 IS NULL OR o.seq IN (SELECT value FROM json_each($10)))
   AND ($1 IS NULL OR o.type = $1)
   AND ($2 IS NULL OR s.topic = $2)
   AND ($3 IS NULL OR s.key = $3)
   AND ($4 IS NULL OR o.id = $4
        OR CASE WHEN json_valid(o.headers) THEN o.headers ->> 'correlationid' = $4 END)
   AND ($5 IS NULL OR o.created_at >= $5)
   AND ($6 IS NULL OR o.created_at < $6)
   AND ($7 IS NULL OR s.published = NOT $7)
 ORDER BY o.seq LIMIT $9
