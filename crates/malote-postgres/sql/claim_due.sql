-- Locks lanes of consumer $1 that are due, the longest overdue first, at most $2; those that somebody is at
-- are left out. Without a token ($3) those are looked for whose head is not a second attempt, among the
-- first $4 only. The head that is seen here is a hint: it may have changed before the lock was had. One that
-- is empty could not be ended when its last message was handled.
SELECT l.topic, l.key, head.attempts IS NULL AS empty
  FROM (SELECT o.topic, o.key FROM malote.lane o
         WHERE o.consumer = $1 AND o.due_at <= (SELECT malote.clock()) ORDER BY o.due_at LIMIT $4) AS due
  JOIN malote.lane l ON l.consumer = $1 AND l.topic = due.topic AND l.key = due.key
  LEFT JOIN LATERAL (SELECT p.attempts FROM malote.parked p
                      WHERE p.consumer = l.consumer AND p.topic = l.topic AND p.key = l.key ORDER BY p.n LIMIT 1)
       AS head ON true
 WHERE l.due_at <= malote.clock() AND ($3 OR coalesce(head.attempts, 0) = 0)
 ORDER BY l.due_at
 LIMIT $2
   FOR NO KEY UPDATE OF l SKIP LOCKED
