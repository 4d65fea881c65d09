-- Acts that nobody has dealt with, the oldest first, at most $1.
SELECT id FROM malote.saga_act WHERE done_at IS NULL ORDER BY id LIMIT $1
