-- Keeps the head for another attempt, if the lane is still claimed by whoever tried it.
-- $1 n, $2 consumer, $3 topic, $4 key, $5 epoch, $6 attempts, $7 class, $8 error, $9 history.
UPDATE malote_parked
   SET attempts = $6, class = $7, error = $8, history = $9, first_at = coalesce(first_at, (SELECT now FROM malote_clock))
 WHERE n = $1 AND EXISTS (
    SELECT 1 FROM malote_lane WHERE consumer = $2 AND topic = $3 AND key = $4 AND epoch = $5)
