-- A dead letter of a lane is given up for good: one less, let go if it had held the key ($4). The lane is locked against
-- those who put something behind, so what waits is all seen.
UPDATE malote.lane l
   SET dead = greatest(0, l.dead - 1), held = l.held AND NOT $4,
       due_at = CASE WHEN l.held AND NOT $4 THEN NULL
                     WHEN EXISTS (SELECT FROM malote.parked p
                                   WHERE p.consumer = l.consumer AND p.topic = l.topic AND p.key = l.key)
                     THEN coalesce(l.due_at, malote.clock()) END
 WHERE l.consumer = $1 AND l.topic = $2 AND l.key = $3
