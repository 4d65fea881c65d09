-- Asks for an act on an instance; no row where it is not there. $1 instance, $2 deed, $3 actor, $4 reason.
INSERT INTO malote_saga_act (saga, deed, actor, reason, asked_at)
SELECT id, $2, $3, $4, (SELECT now FROM malote_clock) FROM malote_saga WHERE id = $1 AND NOT removed
RETURNING id
