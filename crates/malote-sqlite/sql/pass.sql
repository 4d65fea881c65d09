-- Counts messages that were handled in lanes of which something is dead. $1: consumer;
-- $2: [[topic, key, how many], …], each lane once.
UPDATE malote_lane AS l SET passed = l.passed + (each.value ->> 2) FROM json_each($2) AS each
 WHERE l.consumer = $1 AND l.topic = each.value ->> 0 AND l.key = each.value ->> 1 AND l.dead > 0
