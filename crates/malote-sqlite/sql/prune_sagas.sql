-- Sagas that ended long ago, the oldest first. $1: milliseconds to keep; $2: at most so many.
SELECT id FROM malote_saga
 WHERE NOT removed AND ended_at IS NOT NULL AND ended_at <= (SELECT now FROM malote_clock) - $1
 ORDER BY ended_at LIMIT $2
