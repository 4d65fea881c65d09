-- Dead letters without their records, in the order in which they were given up. What is NULL chooses all.
-- $1 [id, …], $2 by, $3 type, $4 topic, $5 key, $6 class, $7 event or conversation, $8 since, $9 until,
-- $10 those with a larger number than this, $11 at most so many.
SELECT d.id, d.by, d.what, d.type, d.topic, d.key, d."partition", d."offset", d.class, d.reason, d.attempts,
       d.history, d.correlation_id, d.trace, d.first_at, d.last_at, d.holds_key,
       CASE WHEN l.passed > d.passed_before THEN l.passed - d.passed_before ELSE 0 END AS newer,
       length(d.record_payload) AS payload_bytes
  FROM malote_dead AS d
  LEFT JOIN malote_lane AS l
    ON d.by LIKE 'consumer %' AND l.consumer = substr(d.by, 10) AND l.topic = d.topic AND l.key = d.key
 WHERE d.id > $10
   AND ($1 IS NULL OR d.id IN (SELECT value FROM json_each($1)))
   AND ($2 IS NULL OR d.by = $2)
   AND ($3 IS NULL OR d.type = $3)
   AND ($4 IS NULL OR d.topic = $4)
   AND ($5 IS NULL OR d.key = $5)
   AND ($6 IS NULL OR d.class = $6)
   AND ($7 IS NULL OR d.event_id = $7 OR d.correlation_id = $7)
   AND ($8 IS NULL OR d.last_at >= $8)
   AND ($9 IS NULL OR d.last_at < $9)
 ORDER BY d.id LIMIT $11
