-- Acts that nobody has dealt with, the oldest first. $1: at most so many.
SELECT id FROM malote_saga_act WHERE done_at IS NULL ORDER BY id LIMIT $1
