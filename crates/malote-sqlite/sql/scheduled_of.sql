-- Of the envelopes $1 [id, …] those that are not due yet: the timers of one saga.
SELECT id, type, topic, key, due_at FROM malote_scheduled
 WHERE id IN (SELECT value FROM json_each($1)) ORDER BY due_at, rowid
