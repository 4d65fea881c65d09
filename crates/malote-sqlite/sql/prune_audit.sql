-- Old acts of people, the oldest first. $1: milliseconds to keep; $2: at most so many.
SELECT id FROM malote_audit WHERE at <= (SELECT now FROM malote_clock) - $1 ORDER BY at LIMIT $2
