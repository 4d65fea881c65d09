-- Takes the lease when it is free or over, renews it when it is ours already; no row means that it is
-- somebody else's. The epoch grows whenever the lease changes hands, and only then.
-- $1: relay; $2: incarnation; $3: milliseconds.
INSERT INTO malote_relay AS held (name, incarnation, epoch, expires_at)
VALUES ($1, $2, 1, (SELECT now FROM malote_clock) + $3)
ON CONFLICT (name) DO UPDATE
SET epoch = held.epoch + (held.incarnation IS NOT excluded.incarnation),
    incarnation = excluded.incarnation,
    expires_at = excluded.expires_at
WHERE held.incarnation IS excluded.incarnation
   OR held.incarnation IS NULL
   OR held.expires_at <= (SELECT now FROM malote_clock)
RETURNING epoch, high, gaps,
          COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'malote_outbox'), 0) AS last
