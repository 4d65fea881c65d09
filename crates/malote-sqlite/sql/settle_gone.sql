-- A lane of which nothing is parked, held or dead is free again. $1 consumer, $2 topic, $3 key.
DELETE FROM malote_lane
 WHERE consumer = $1 AND topic = $2 AND key = $3 AND due_at IS NULL AND NOT held AND dead <= 0
