-- Removes answers, and claims that were abandoned, when they are older than $1 microseconds; at most $2.
-- The clock is asked once, so that the index is used.
DELETE FROM malote.idempotency
 WHERE request IN (SELECT request FROM malote.idempotency
                    WHERE coalesce(done_at, lease_until) < (SELECT malote.clock()) - $1 * interval '1 microsecond'
                    ORDER BY coalesce(done_at, lease_until)
                    LIMIT $2 FOR UPDATE SKIP LOCKED)
