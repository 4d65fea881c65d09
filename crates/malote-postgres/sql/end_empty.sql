-- Ends these locked lanes: of one in which nothing is parked any more the row goes, unless a dead letter is to
-- be remembered; one in which there is something after all is due. A statement of its own, so that it sees
-- what was put behind before the locks were had.
WITH lane AS MATERIALIZED (
    SELECT l.topic, l.key, NOT EXISTS (SELECT FROM malote.parked p
                                        WHERE p.consumer = $1 AND p.topic = l.topic AND p.key = l.key) AS empty
      FROM malote.lane l
      JOIN unnest($2::text[], $3::text[]) AS asked (topic, key) ON l.topic = asked.topic AND l.key = asked.key
     WHERE l.consumer = $1
), gone AS (
    DELETE FROM malote.lane l USING lane
     WHERE l.consumer = $1 AND l.topic = lane.topic AND l.key = lane.key AND lane.empty AND l.dead <= 0 AND NOT l.held
)
UPDATE malote.lane l
   SET due_at = CASE WHEN NOT lane.empty THEN malote.clock() END
  FROM lane
 WHERE l.consumer = $1 AND l.topic = lane.topic AND l.key = lane.key AND NOT (lane.empty AND l.dead <= 0 AND NOT l.held)
