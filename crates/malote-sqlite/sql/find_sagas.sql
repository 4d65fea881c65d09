-- Sagas whose ids lie between $1 and $2, at most $3: whoever types the beginning of an id means one of them.
SELECT id FROM malote_saga WHERE NOT removed AND id BETWEEN $1 AND $2 ORDER BY id LIMIT $3
