-- Writes a changed instance over the revision that was read; no row where it is another one. $1 id, $2 revision,
-- $3 status, $4 heading, $5 on_request, $6 reason, $7 state, $8 legs, $9 entries, $10 steps, $11 whether it has
-- ended (when it did so first is kept). What was only noted, such as a duplicate, is no change: it would make what
-- stands still look alive.
UPDATE malote.saga
   SET status = $3, heading = $4, on_request = $5, reason = $6, state = $7, legs = $8, entries = $9, steps = $10,
       revision = revision + 1,
       changed_at = CASE WHEN status = $3 AND legs = $8 AND state = $7 THEN changed_at ELSE malote.clock() END,
       ended_at = CASE WHEN $11 THEN coalesce(ended_at, malote.clock()) END
 WHERE id = $1 AND NOT removed AND revision = $2
