-- A lane has one dead letter less. $1 consumer, $2 topic, $3 key.
UPDATE malote_lane SET dead = max(dead - 1, 0) WHERE consumer = $1 AND topic = $2 AND key = $3
