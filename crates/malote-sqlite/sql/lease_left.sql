-- How many milliseconds, one at least, somebody else's lease has left. $1: relay.
SELECT MAX(expires_at - (SELECT now FROM malote_clock), 1) FROM malote_relay WHERE name = $1
