-- Takes over a claim whose lease has passed, if it still has no answer. A row that its first owner is
-- writing to in this instant is skipped, not waited for.
UPDATE malote.idempotency
   SET owner = $3, lease_until = malote.clock() + $4 * interval '1 microsecond'
 WHERE request = (SELECT request FROM malote.idempotency
                   WHERE request = sha256($1) AND fingerprint = $2 AND status IS NULL AND lease_until <= malote.clock()
                     FOR UPDATE SKIP LOCKED)
