-- Writes a new instance; no row where one of this id is there, or its tombstone is. $1 id, $2 revision, $3 status,
-- $4 heading, $5 on_request, $6 reason, $7 state, $8 legs, $9 entries, $10 steps, $11 whether it has ended already (up
-- to here as in save_saga.sql), $12 definition, $13 version.
INSERT INTO malote_saga (id, revision, status, heading, on_request, reason, state, legs, entries, steps, definition,
                         version, started_at, changed_at, ended_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $12, $13, now, now, CASE WHEN $11 THEN now END FROM malote_clock
 WHERE true
ON CONFLICT (id) DO NOTHING
