-- Acts that nobody has dealt with, the oldest first, at most $2 of those numbered above $1.
SELECT id FROM malote.saga_act WHERE done_at IS NULL AND id > $1 ORDER BY id LIMIT $2
