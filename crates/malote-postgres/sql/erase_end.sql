-- The lanes of key $1 hold its text, too.
DELETE FROM malote.lane WHERE key = $1
