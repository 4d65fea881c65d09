-- Removes acts that are older than $1 microseconds, at most $2. The beginning of one that has not ended stays: some
-- process is at it, or died at it. So do those of its like that began after it, since nobody can tell whose end is
-- whose. What follows a beginning, of all that the same person did with the same target and reason, is its end.
DELETE FROM malote.audit
 WHERE id IN (SELECT a.id FROM malote.audit a
               WHERE a.at < (SELECT malote.clock()) - $1 * interval '1 microsecond'
                 AND NOT (a.outcome = 'begun' AND EXISTS (
                     SELECT FROM malote.audit b
                       LEFT JOIN LATERAL (SELECT o.outcome FROM malote.audit o
                                           WHERE o.id > b.id AND o.actor = b.actor AND o.act = b.act
                                             AND o.target = b.target AND o.reason = b.reason
                                           ORDER BY o.id LIMIT 1) AS next ON true
                      WHERE b.id <= a.id AND b.outcome = 'begun' AND b.actor = a.actor AND b.act = a.act
                        AND b.target = a.target AND b.reason = a.reason AND coalesce(next.outcome, 'begun') = 'begun'))
               ORDER BY a.at, a.id LIMIT $2)
