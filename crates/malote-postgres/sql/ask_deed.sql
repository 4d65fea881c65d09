-- Asks for an act on an instance; no row where it is not there. $1 instance, $2 deed, $3 actor, $4 reason.
INSERT INTO malote.saga_act (saga, deed, actor, reason)
SELECT id, $2, $3, $4 FROM malote.saga WHERE id = $1 AND NOT removed
RETURNING id
