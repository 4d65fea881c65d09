-- Makes lanes due in which nothing waited: dead letters had been left behind in them. A lane in which
-- something waits keeps its time.
UPDATE malote.lane l
   SET due_at = malote.clock() + asked.wait * interval '1 microsecond'
  FROM unnest($2::text[], $3::text[], $4::float8[]) AS asked (topic, key, wait)
 WHERE l.consumer = $1 AND l.topic = asked.topic AND l.key = asked.key AND l.due_at IS NULL AND NOT l.held
