-- In how many milliseconds the next envelope is due; below zero when it is late.
SELECT min(due_at) - (SELECT now FROM malote_clock) FROM malote_scheduled
