-- Removes up to $2 rows of the inbox, of days before $3, that are done and were handled more than $1
-- microseconds ago. What is parked or dead stays.
DELETE FROM malote.NAME
 WHERE ctid = ANY (ARRAY(SELECT ctid FROM malote.NAME
                          WHERE day < $3 AND state IN ('done', 'discarded')
                            AND at <= (SELECT malote.clock()) - $1 * interval '1 microsecond'
                          LIMIT $2 FOR UPDATE SKIP LOCKED))
