-- When the lane may be tried again, or its claim ends. $1 consumer, $2 topic, $3 key, $4 milliseconds.
UPDATE malote_lane SET due_at = (SELECT now FROM malote_clock) + $4 WHERE consumer = $1 AND topic = $2 AND key = $3
