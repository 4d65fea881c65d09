-- Old dead letters, the oldest first. One that holds its key waits for a person, however long.
-- $1: milliseconds to keep; $2: at most so many.
SELECT id FROM malote_dead
 WHERE last_at <= (SELECT now FROM malote_clock) - $1 AND NOT holds_key
 ORDER BY last_at LIMIT $2
