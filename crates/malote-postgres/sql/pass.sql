-- Counts messages that were handled in lanes with a dead letter, so that a redrive knows of them.
WITH lane AS MATERIALIZED (
    SELECT l.topic, l.key, asked.handled
      FROM malote.lane l
      JOIN (SELECT topic, key, count(*) AS handled FROM unnest($2::text[], $3::text[]) AS a (topic, key) GROUP BY 1, 2)
           AS asked ON l.topic = asked.topic AND l.key = asked.key
     WHERE l.consumer = $1 AND l.dead > 0
     ORDER BY l.topic COLLATE "C", l.key COLLATE "C"
       FOR NO KEY UPDATE OF l
)
UPDATE malote.lane l
   SET passed = l.passed + lane.handled
  FROM lane
 WHERE l.consumer = $1 AND l.topic = lane.topic AND l.key = lane.key
