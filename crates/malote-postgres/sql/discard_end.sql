-- A lane that nothing is to be remembered of goes.
DELETE FROM malote.lane WHERE consumer = $1 AND topic = $2 AND key = $3 AND dead <= 0 AND NOT held AND due_at IS NULL
