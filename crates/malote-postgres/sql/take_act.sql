-- An act to deal with; no row where that is done, or somebody is at it.
SELECT saga, deed, actor, reason FROM malote.saga_act WHERE id = $1 AND done_at IS NULL FOR UPDATE SKIP LOCKED
