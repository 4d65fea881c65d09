-- Writes down what came of an act, for whoever asked. $1 id, $2 outcome, $3 whether it was denied.
UPDATE malote_saga_act SET done_at = (SELECT now FROM malote_clock), outcome = $2, denied = $3
 WHERE id = $1 AND done_at IS NULL
