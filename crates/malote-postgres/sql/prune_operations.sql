-- Removes what was answered or called off more than $1 microseconds ago, at most $2, the oldest first.
DELETE FROM malote.operation
 WHERE (consumer, id) IN (SELECT consumer, id FROM malote.operation
                           WHERE at <= (SELECT malote.clock()) - $1 * interval '1 microsecond'
                           ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)
