-- Makes lanes due now that wait for another attempt; one that is held stays so. $1: [[consumer, topic, key], …].
UPDATE malote_lane SET due_at = (SELECT now FROM malote_clock)
 WHERE due_at IS NOT NULL AND NOT held AND (consumer, topic, key) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1))
