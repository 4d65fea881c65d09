-- Acts that nobody has dealt with, the oldest first. $1: numbered above this, $2: at most so many.
SELECT id FROM malote_saga_act WHERE done_at IS NULL AND id > $1 ORDER BY id LIMIT $2
