-- Counts messages that were handled in lanes of which something is dead. $1: consumer;
-- $2: [[topic, key, how many], …], each lane once.
UPDATE malote_lane AS l
   SET passed = l.passed + (SELECT each.value ->> 2 FROM json_each($2) AS each
                             WHERE each.value ->> 0 = l.topic AND each.value ->> 1 = l.key)
 WHERE consumer = $1 AND dead > 0
   AND (topic, key) IN (SELECT each.value ->> 0, each.value ->> 1 FROM json_each($2) AS each)
