-- Lanes whose head is due, the longest overdue first, so that those which always fail cannot keep fresh
-- ones waiting. $1: consumer; $2: at most so many.
SELECT l.topic, l.key,
       (SELECT p.attempts FROM malote_parked AS p
         WHERE p.consumer = l.consumer AND p.topic = l.topic AND p.key = l.key ORDER BY p.n LIMIT 1) AS attempts
  FROM malote_lane AS l
 WHERE l.consumer = $1 AND l.due_at <= (SELECT now FROM malote_clock)
 ORDER BY l.due_at, l.topic, l.key LIMIT $2
