-- A lane of which nothing is parked is not due any more. $1 consumer, $2 topic, $3 key.
UPDATE malote_lane SET due_at = NULL
 WHERE consumer = $1 AND topic = $2 AND key = $3 AND NOT EXISTS (
    SELECT 1 FROM malote_parked WHERE consumer = $1 AND topic = $2 AND key = $3)
