-- Holds a lane until a person decides. $1 consumer, $2 topic, $3 key.
UPDATE malote_lane SET held = 1, due_at = NULL WHERE consumer = $1 AND topic = $2 AND key = $3
