-- Of these instances the tombstone stays, which a late second start meets. $1 [id, …].
UPDATE malote_saga SET removed = 1, state = '', legs = '[]', steps = '[]', reason = NULL
 WHERE id IN (SELECT value FROM json_each($1))
