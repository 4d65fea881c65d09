-- Old answers, and claims whose owner never came back, the oldest first.
-- $1: milliseconds to keep; $2: at most so many.
SELECT rowid FROM malote_idempotency
 WHERE coalesce(done_at, lease_until) <= (SELECT now FROM malote_clock) - $1
 ORDER BY coalesce(done_at, lease_until) LIMIT $2
