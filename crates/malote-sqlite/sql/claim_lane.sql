-- Claims a lane: whoever claimed it before can change nothing from here on.
-- $1 consumer, $2 topic, $3 key, $4 milliseconds.
UPDATE malote_lane SET epoch = epoch + 1, due_at = (SELECT now FROM malote_clock) + $4
 WHERE consumer = $1 AND topic = $2 AND key = $3
RETURNING epoch
