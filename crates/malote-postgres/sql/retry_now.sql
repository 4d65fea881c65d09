-- Makes lanes due now whose head was to wait: those of parked messages ($1 their numbers). What somebody is at is left.
WITH lane AS MATERIALIZED (
    SELECT l.consumer, l.topic, l.key
      FROM malote.lane l
     WHERE l.due_at > (SELECT malote.clock()) AND NOT l.held
       AND EXISTS (SELECT FROM malote.parked p
                    WHERE p.consumer = l.consumer AND p.topic = l.topic AND p.key = l.key AND p.n = ANY ($1::int8[]))
     ORDER BY l.consumer, l.topic, l.key
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE malote.lane l SET due_at = malote.clock()
  FROM lane WHERE l.consumer = lane.consumer AND l.topic = lane.topic AND l.key = lane.key
