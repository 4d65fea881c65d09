-- How many milliseconds somebody else's lease has left. $1: relay.
SELECT MAX(expires_at - (SELECT now FROM malote_clock), 0) FROM malote_relay WHERE name = $1
