-- The history of these instances goes. $1 [id, …].
DELETE FROM malote_saga_log WHERE saga IN (SELECT value FROM json_each($1))
