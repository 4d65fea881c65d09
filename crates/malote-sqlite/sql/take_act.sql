-- An act to deal with; no row where that is done. The write lock keeps everybody else from it.
SELECT saga, deed, actor, reason FROM malote_saga_act WHERE id = $1 AND done_at IS NULL
