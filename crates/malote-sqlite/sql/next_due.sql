-- In how many milliseconds a lane of a consumer is due; below zero when it is late. $1: consumer.
SELECT min(due_at) - (SELECT now FROM malote_clock) FROM malote_lane WHERE consumer = $1 AND due_at IS NOT NULL
