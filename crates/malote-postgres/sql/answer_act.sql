-- Writes down what came of act $1, for whoever asked: $2, and whether it was denied.
UPDATE malote.saga_act SET done_at = malote.clock(), outcome = $2, denied = $3 WHERE id = $1 AND done_at IS NULL
