-- Removes acts that are older than $1 microseconds, at most $2.
DELETE FROM malote.audit
 WHERE id IN (SELECT id FROM malote.audit WHERE at < (SELECT malote.clock()) - $1 * interval '1 microsecond'
               ORDER BY at LIMIT $2)
