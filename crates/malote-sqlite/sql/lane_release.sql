-- Lets a held lane go on: what waits in it is due after $4 milliseconds. $1 consumer, $2 topic, $3 key.
UPDATE malote_lane AS l
   SET held = 0,
       due_at = CASE WHEN EXISTS (SELECT 1 FROM malote_parked AS p
                                   WHERE p.consumer = l.consumer AND p.topic = l.topic AND p.key = l.key)
                     THEN (SELECT now FROM malote_clock) + $4 END
 WHERE consumer = $1 AND topic = $2 AND key = $3 AND held
