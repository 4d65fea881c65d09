-- Stores the cursor and renews the lease, in one statement with the fence: whoever lost the lease
-- changes nothing. $1: relay; $2: incarnation; $3: epoch; $4: high; $5: gaps; $6: milliseconds.
UPDATE malote_relay
SET high = $4, gaps = $5, expires_at = (SELECT now FROM malote_clock) + $6
WHERE name = $1 AND incarnation = $2 AND epoch = $3
