-- Which of these lanes are not free for consumer $1, and whether something of them waits or is held.
-- KEY SHARE keeps those that are there as they are until the transaction ends, and keeps no claim
-- waiting; the order is one for all, so that nobody waits in a circle.
SELECT l.topic, l.key, (l.due_at IS NOT NULL OR l.held) AS busy
  FROM malote.lane l
  JOIN unnest($2::text[], $3::text[]) AS asked (topic, key) ON l.topic = asked.topic AND l.key = asked.key
 WHERE l.consumer = $1
 ORDER BY l.topic COLLATE "C", l.key COLLATE "C"
   FOR KEY SHARE OF l
