-- A claim on a request: makes its row, or shows the one that is there.
-- DO NOTHING locks nothing when the row is there, so a second request is told at once that the first
-- is running, even while the first writes its answer. No row at all means that somebody else's was
-- made in this instant, after this statement's snapshot: ask again.
WITH made AS (
    INSERT INTO malote.idempotency (request, caller, scope, key, fingerprint, owner, lease_until)
    VALUES (sha256($1), $2, $3, $4, $5, $6, malote.clock() + $7 * interval '1 microsecond')
    ON CONFLICT DO NOTHING
    RETURNING request
)
SELECT true AS won, NULL::bytea AS fingerprint, NULL::smallint AS status, NULL::json AS headers, NULL::bytea AS body,
       0::int8 AS held_for
  FROM made
UNION ALL
SELECT false, fingerprint, status, headers, body,
       greatest(0, ceil(extract(epoch FROM lease_until - malote.clock()) * 1000000))::int8
  FROM malote.idempotency
 WHERE request = sha256($1) AND NOT EXISTS (SELECT FROM made)
