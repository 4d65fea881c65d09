-- Counts the attempt that is about to be made at the head of a lane, and reads it.
-- $1 consumer, $2 topic, $3 key.
UPDATE malote_parked SET attempts = attempts + 1
 WHERE n = (SELECT n FROM malote_parked WHERE consumer = $1 AND topic = $2 AND key = $3 ORDER BY n LIMIT 1)
RETURNING n, what, event_id, day, attempts, max((SELECT now FROM malote_clock) - first_at, 0) AS age, history,
          record_key, record_headers, record_payload
