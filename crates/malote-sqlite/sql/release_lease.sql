-- Gives a lease back; the cursor stays. Says nothing of a lease that is somebody else's by now.
-- $1: relay; $2: incarnation; $3: epoch.
UPDATE malote_relay SET incarnation = NULL, expires_at = 0
WHERE name = $1 AND incarnation = $2 AND epoch = $3
