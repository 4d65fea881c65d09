-- Acts on saga $1 that nobody has dealt with, the oldest first.
SELECT id, deed, actor, reason, asked_at FROM malote.saga_act WHERE saga = $1 AND done_at IS NULL ORDER BY id
