-- What came of act $1; no row as long as nobody has dealt with it.
SELECT outcome, denied FROM malote.saga_act WHERE id = $1 AND done_at IS NOT NULL
