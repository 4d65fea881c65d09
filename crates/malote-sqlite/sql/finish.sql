-- Records the answer, if the claim is still the caller's own: the number of rows says so.
-- $1 caller, $2 scope, $3 key, $4 owner, $5 status, $6 headers, $7 body.
UPDATE malote_idempotency
SET status = $5, headers = $6, body = $7, done_at = (SELECT now FROM malote_clock)
WHERE caller = $1 AND scope = $2 AND key = $3 AND owner = $4 AND status IS NULL
