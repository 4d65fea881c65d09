-- Of the envelopes $1 those that are not due yet: the timers of one saga.
SELECT id::text AS id, type, topic, key, due_at FROM malote.scheduled WHERE id = ANY($1) ORDER BY due_at, id
