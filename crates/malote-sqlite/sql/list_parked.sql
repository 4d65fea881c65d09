-- Messages that are parked, lane by lane in their order. What is NULL chooses all. $1 consumer, $2 type,
-- $3 topic, $4 key, $5 class, $6 event, $7 since, $8 until, $9 at most so many.
SELECT p.consumer, p.topic, p.key, p.what, p.type, p.attempts, p.parked_at, l.held, p.class, p.error,
       CASE WHEN p.n = (SELECT n FROM malote_parked AS h WHERE h.consumer = p.consumer AND h.topic = p.topic
                           AND h.key = p.key ORDER BY n LIMIT 1) THEN l.due_at END AS due_at
  FROM malote_parked AS p
  JOIN malote_lane AS l ON l.consumer = p.consumer AND l.topic = p.topic AND l.key = p.key
 WHERE ($1 IS NULL OR p.consumer = $1)
   AND ($2 IS NULL OR p.type = $2)
   AND ($3 IS NULL OR p.topic = $3)
   AND ($4 IS NULL OR p.key = $4)
   AND ($5 IS NULL OR p.class = $5)
   AND ($6 IS NULL OR p.event_id = $6)
   AND ($7 IS NULL OR p.parked_at >= $7)
   AND ($8 IS NULL OR p.parked_at < $8)
 ORDER BY p.consumer, p.topic, p.key, p.n LIMIT $9
