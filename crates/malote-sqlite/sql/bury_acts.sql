-- What people asked of these instances goes, where somebody has dealt with it; audit still tells of it. $1 [id, …].
DELETE FROM malote_saga_act WHERE done_at IS NOT NULL AND saga IN (SELECT value FROM json_each($1))
