-- Sets aside what was given up; `fresh` is false when the same thing had been given up before: then it is the
-- same row, with its newest reason. `passed_before` is how many messages of the lane ($14, topic, $15)
-- were handled until now. It failed first when its history says so, but not in the future.
WITH old AS (SELECT id FROM malote.dead WHERE by = $1 AND what = $2)
INSERT INTO malote.dead (by, what, event_id, type, topic, "partition", "offset", reason, attempts,
                         record_key, header_names, header_values, record_payload,
                         day, key, class, history, correlation_id, trace, holds_key, first_at, passed_before)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
        $16, $15, $17, $18, $19, $20, $21, least(malote.clock(), $22::timestamptz),
        coalesce((SELECT passed FROM malote.lane WHERE consumer = $14 AND topic = $5 AND key = $15), 0))
ON CONFLICT (by, what) DO UPDATE
   SET reason = excluded.reason, attempts = greatest(dead.attempts, excluded.attempts), class = excluded.class,
       history = excluded.history, last_at = malote.clock()
RETURNING NOT EXISTS (SELECT FROM old) AS fresh
