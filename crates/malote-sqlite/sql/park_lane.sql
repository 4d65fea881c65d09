-- Makes lanes for messages that are to be parked. One that has nothing parked becomes due with the first
-- of them; one that has a head already, or is held, stays as it is: what comes goes behind.
-- $1: consumer; $2: [{"topic", "key", "wait": milliseconds}, …], in order.
INSERT INTO malote_lane AS l (consumer, topic, key, due_at)
SELECT $1, each.value ->> 'topic', each.value ->> 'key', (SELECT now FROM malote_clock) + (each.value ->> 'wait')
  FROM json_each($2) AS each WHERE true ORDER BY each.key
    ON CONFLICT (consumer, topic, key) DO UPDATE SET due_at = excluded.due_at
 WHERE l.due_at IS NULL AND NOT l.held
