-- Envelopes that are not due yet, the next one first, at most $1.
SELECT id::text AS id, type, topic, key, due_at FROM malote.scheduled ORDER BY due_at, id LIMIT $1
