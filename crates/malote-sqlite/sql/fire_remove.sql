-- Removes what was copied to the outbox, in the same transaction; the clock may have moved, so the
-- number counts. $1: how many were copied.
DELETE FROM malote_scheduled WHERE id IN (SELECT id FROM malote_scheduled ORDER BY due_at, rowid LIMIT $1)
