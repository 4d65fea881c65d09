-- Counts a message that was handled in a lane of which something is dead. $1 consumer, $2 topic, $3 key.
UPDATE malote_lane SET passed = passed + 1 WHERE consumer = $1 AND topic = $2 AND key = $3 AND dead > 0
