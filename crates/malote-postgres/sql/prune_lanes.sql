-- Removes lanes of which nothing is parked, held or dead any more, and which nobody is at.
DELETE FROM malote.lane l
 USING (SELECT consumer, topic, key FROM malote.lane WHERE due_at IS NULL AND NOT held AND dead <= 0
         LIMIT 10000 FOR UPDATE SKIP LOCKED) AS free
 WHERE l.consumer = free.consumer AND l.topic = free.topic AND l.key = free.key
