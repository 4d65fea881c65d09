-- Claims a request that nobody has claimed, or whose claim is over; no row means that it was not to be had.
-- $1 caller, $2 scope, $3 key, $4 fingerprint, $5 owner, $6 milliseconds.
INSERT INTO malote_idempotency AS held (caller, scope, key, fingerprint, owner, lease_until)
VALUES ($1, $2, $3, $4, $5, (SELECT now FROM malote_clock) + $6)
ON CONFLICT (caller, scope, key) DO UPDATE
SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE held.fingerprint = excluded.fingerprint
  AND held.status IS NULL
  AND held.lease_until <= (SELECT now FROM malote_clock)
RETURNING 1
