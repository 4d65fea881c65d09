-- What is at the head of a lane now: claimed for $4 microseconds and counted, if it only waited behind the
-- last one. One that has been tried before becomes due instead, so that it is claimed within the budget.
WITH head AS MATERIALIZED (
    SELECT p.n, p.attempts FROM malote.parked p WHERE p.consumer = $1 AND p.topic = $2 AND p.key = $3 ORDER BY p.n LIMIT 1
), lane AS (
    UPDATE malote.lane l
       SET due_at = malote.clock() + CASE WHEN head.attempts = 0 THEN $4::float8 ELSE 0 END * interval '1 microsecond'
      FROM head
     WHERE l.consumer = $1 AND l.topic = $2 AND l.key = $3
    RETURNING l.epoch
), counted AS (
    UPDATE malote.parked p SET attempts = p.attempts + 1 FROM head WHERE p.n = head.n AND p.attempts = 0 RETURNING p.*
)
SELECT head.n, $2 AS topic, $3 AS key, lane.epoch, counted.what, counted.event_id, counted.day, counted.attempts,
       counted.history, coalesce(greatest(0, extract(epoch FROM malote.clock() - counted.first_at) * 1000000), 0)::int8 AS age,
       counted.record_key, counted.header_names, counted.header_values, counted.record_payload
  FROM head
 CROSS JOIN lane
  LEFT JOIN counted ON counted.n = head.n
