-- Puts the next attempt at the head $5 off, if the lane is still claimed under epoch $4.
WITH lane AS (
    UPDATE malote.lane SET due_at = malote.clock() + $6 * interval '1 microsecond'
     WHERE consumer = $1 AND topic = $2 AND key = $3 AND epoch = $4
    RETURNING epoch
)
UPDATE malote.parked p
   SET attempts = $7, class = $8, error = $9, history = $10, first_at = coalesce(p.first_at, malote.clock())
  FROM lane
 WHERE p.n = $5 AND p.consumer = $1
