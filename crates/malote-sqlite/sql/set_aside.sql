-- Sets something aside. The same thing again is the same row, with what is known now. $1-$15 as the
-- columns; $16: when it failed first by its history, which another
-- clock has written, and which is not in the future; $17 to $19: the record; $20: its
-- consumer, where it has a lane; $21: whether the lane is held because of it.
INSERT INTO malote_dead (by, what, event_id, day, type, topic, key, "partition", "offset", class, reason, attempts,
                         history, correlation_id, trace, first_at, last_at, record_key, record_headers,
                         record_payload, passed_before, holds_key)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
       min(coalesce($16, now), now), now, $17, $18, $19,
       coalesce((SELECT passed FROM malote_lane WHERE consumer = $20 AND topic = $6 AND key = $7), 0), $21
  FROM malote_clock WHERE true
    ON CONFLICT (by, what) DO UPDATE
   SET class = excluded.class, reason = excluded.reason, attempts = excluded.attempts, history = excluded.history,
       last_at = excluded.last_at
