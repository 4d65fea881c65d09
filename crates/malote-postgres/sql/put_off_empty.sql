-- Looks at these lanes again in $4 microseconds: nothing is parked in them, and somebody is about to put
-- something there.
UPDATE malote.lane l SET due_at = malote.clock() + $4 * interval '1 microsecond'
  FROM unnest($2::text[], $3::text[]) AS asked (topic, key)
 WHERE l.consumer = $1 AND l.topic = asked.topic AND l.key = asked.key
