-- Removes up to $2 published rows (at or below $1, older than $3 microseconds) that went to the DEFAULT partition
-- because theirs was not made in time.
DELETE FROM malote.outbox_rest
 WHERE seq IN (SELECT seq FROM malote.outbox_rest
                WHERE seq <= $1 AND created_at <= malote.clock() - $3 * interval '1 microsecond' ORDER BY seq LIMIT $2)
