-- Removes the lanes of a key, which name it. $1: key.
DELETE FROM malote_lane WHERE key = $1
