-- Writes a new instance; no row where one of this id is there, or its tombstone is. Whoever writes the same id at the
-- same time is waited for. $1 id, $2 definition, $3 version, $4 status, $5 heading, $6 on_request, $7 reason, $8 state,
-- $9 legs, $10 entries, $11 revision, $12 steps, $13 whether it has ended already.
INSERT INTO malote.saga (id, definition, version, status, heading, on_request, reason, state, legs, entries, revision,
                         steps, started_at, changed_at, ended_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now, now, CASE WHEN $13 THEN now END FROM malote.clock() AS now
ON CONFLICT (id) DO NOTHING
