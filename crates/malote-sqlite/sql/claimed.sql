-- What stands in the way of a claim; read in the transaction that tried it.
-- $1 caller, $2 scope, $3 key, $4 fingerprint.
SELECT fingerprint = $4 AS same, status, headers, body,
       MAX(lease_until - (SELECT now FROM malote_clock), 1) AS ms_left
FROM malote_idempotency WHERE caller = $1 AND scope = $2 AND key = $3
