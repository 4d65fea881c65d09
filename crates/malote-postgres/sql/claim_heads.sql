-- Claims the heads of lanes that this transaction has locked, for $5 microseconds, and counts the attempt
-- at each: one that kills the process has been counted. A statement of its own, so that it sees what was at
-- the head when the lock was had. Second attempts take a token each; $4 are left.
WITH lane AS MATERIALIZED (
    SELECT l.topic, l.key, l.due_at, head.n, head.attempts,
           count(*) FILTER (WHERE head.attempts > 0) OVER (ORDER BY l.due_at, l.topic, l.key) AS retries
      FROM unnest($2::text[], $3::text[]) AS locked (topic, key)
      JOIN malote.lane l ON l.consumer = $1 AND l.topic = locked.topic AND l.key = locked.key
     CROSS JOIN LATERAL (SELECT p.n, p.attempts FROM malote.parked p
                          WHERE p.consumer = l.consumer AND p.topic = l.topic AND p.key = l.key
                          ORDER BY p.n LIMIT 1) AS head
), taken AS (
    SELECT * FROM lane WHERE attempts = 0 OR retries <= $4
), claimed AS (
    UPDATE malote.lane l
       SET epoch = l.epoch + 1, due_at = malote.clock() + $5 * interval '1 microsecond'
      FROM taken
     WHERE l.consumer = $1 AND l.topic = taken.topic AND l.key = taken.key
    RETURNING l.topic, l.key, l.epoch
), spent AS (
    UPDATE malote.budget SET tokens = tokens - (SELECT count(*) FROM taken WHERE attempts > 0) WHERE consumer = $1
), head AS (
    UPDATE malote.parked p SET attempts = p.attempts + 1 FROM taken WHERE p.n = taken.n RETURNING p.*
)
SELECT head.n, head.topic, head.key, claimed.epoch, head.what, head.event_id, head.day, head.attempts, head.history,
       coalesce(greatest(0, extract(epoch FROM malote.clock() - head.first_at) * 1000000), 0)::int8 AS age,
       head.record_key, head.header_names, head.header_values, head.record_payload
  FROM head
  JOIN taken ON taken.n = head.n
  JOIN claimed ON claimed.topic = taken.topic AND claimed.key = taken.key
 ORDER BY taken.due_at, taken.topic, taken.key
