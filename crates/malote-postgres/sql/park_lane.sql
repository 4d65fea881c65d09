-- Makes the lanes that are not there. DO NOTHING does not wait for an attempt that is running in a lane.
INSERT INTO malote.lane (consumer, topic, key, due_at)
SELECT $1, l.topic, l.key, malote.clock() + l.wait * interval '1 microsecond'
  FROM unnest($2::text[], $3::text[], $4::float8[]) AS l (topic, key, wait)
 ORDER BY l.topic, l.key
ON CONFLICT DO NOTHING
