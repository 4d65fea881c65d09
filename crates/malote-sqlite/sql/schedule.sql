-- Keeps an envelope until its time, which is measured by the database's clock from now, or is a time.
-- A clock that shows whole milliseconds is up to one behind: one more, and nothing is ever early.
-- $1 id, $2 type, $3 topic, $4 key, $5 headers, $6 payload, $7 milliseconds from now, or $8 since 1970.
INSERT INTO malote_scheduled (id, due_at, type, topic, key, headers, payload, created_at)
SELECT $1, coalesce($8, now + $7 + 1), $2, $3, $4, $5, $6, now FROM malote_clock
