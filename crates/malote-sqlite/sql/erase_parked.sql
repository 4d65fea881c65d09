-- Removes what is parked of a key. $1: key.
DELETE FROM malote_parked WHERE key = $1
