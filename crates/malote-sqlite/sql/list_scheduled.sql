-- Envelopes that are not due yet, the next one first. $1: at most so many.
SELECT id, type, topic, key, due_at FROM malote_scheduled ORDER BY due_at, rowid LIMIT $1
