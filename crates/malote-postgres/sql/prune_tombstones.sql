-- Removes tombstones of sagas that ended more than $1 microseconds ago, at most $2, the oldest first.
DELETE FROM malote.saga
 WHERE id IN (SELECT id FROM malote.saga
               WHERE removed AND ended_at <= (SELECT malote.clock()) - $1 * interval '1 microsecond'
               ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)
