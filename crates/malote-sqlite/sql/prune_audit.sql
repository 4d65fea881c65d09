-- Old acts of people, the oldest first. The beginning of one that has not ended stays: some process is at it, or died at
-- it. So do those of its like that began after it, since nobody can tell whose end is whose. What follows a beginning,
-- of all that the same person did with the same target and reason, is its end. $1: milliseconds to keep; $2: at most
-- so many.
SELECT id FROM malote_audit AS a
 WHERE at <= (SELECT now FROM malote_clock) - $1
   AND NOT (outcome = 'begun' AND EXISTS (
       SELECT 1 FROM malote_audit AS b
        WHERE b.id <= a.id AND b.outcome = 'begun' AND b.actor = a.actor AND b.act = a.act AND b.target = a.target
          AND b.reason = a.reason
          AND coalesce((SELECT o.outcome FROM malote_audit AS o
                         WHERE o.id > b.id AND o.actor = b.actor AND o.act = b.act AND o.target = b.target
                           AND o.reason = b.reason
                         ORDER BY o.id LIMIT 1), 'begun') = 'begun'))
 ORDER BY at, id LIMIT $2
