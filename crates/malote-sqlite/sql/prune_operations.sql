-- What was answered or called off long ago, the oldest first. $1: milliseconds to keep; $2: at most so many.
SELECT consumer, id FROM malote_operation WHERE at <= (SELECT now FROM malote_clock) - $1 ORDER BY at LIMIT $2
