-- A dead letter is back in its lane: $4 letters less, let go if it had held the key ($5), due $6 microseconds from now
-- where nothing waited.
UPDATE malote.lane
   SET dead = greatest(0, dead - $4), held = held AND NOT $5,
       due_at = CASE WHEN held AND NOT $5 THEN NULL ELSE coalesce(due_at, malote.clock() + $6 * interval '1 microsecond') END
 WHERE consumer = $1 AND topic = $2 AND key = $3
