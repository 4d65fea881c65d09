-- Makes the lanes that are not there. Those that are were locked before, and are left out: DO NOTHING
-- would wait for whoever is changing them, who may be waiting for this transaction.
INSERT INTO malote.lane (consumer, topic, key, due_at)
SELECT $1, l.topic, l.key, malote.clock() + l.wait * interval '1 microsecond'
  FROM unnest($2::text[], $3::text[], $4::float8[]) AS l (topic, key, wait)
 WHERE NOT EXISTS (SELECT FROM malote.lane there
                    WHERE there.consumer = $1 AND there.topic = l.topic AND there.key = l.key)
 ORDER BY l.topic COLLATE "C", l.key COLLATE "C"
ON CONFLICT DO NOTHING
