-- Locks lanes against those who put something behind. Those of which somebody is at it are left out: it
-- may be waiting for what this transaction holds.
SELECT l.topic, l.key
  FROM malote.lane l
  JOIN unnest($2::text[], $3::text[]) AS asked (topic, key) ON l.topic = asked.topic AND l.key = asked.key
 WHERE l.consumer = $1
   FOR UPDATE OF l SKIP LOCKED
