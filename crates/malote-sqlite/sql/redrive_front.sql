-- Parks a dead letter in front of its lane, of which it was the head. Numbers below zero are in front of
-- all that were ever given, and no two letters get the same one.
-- $1 consumer, $2 topic, $3 key, $4 history, $5 the letter's id,
-- $6 the day of its event.
INSERT INTO malote_parked (n, consumer, topic, key, what, event_id, day, type, attempts, first_at, parked_at,
                           history, record_key, record_headers, record_payload)
SELECT min(coalesce((SELECT min(n) FROM malote_parked), 0), 0) - 1, $1, $2, $3, what, event_id, $6, type, 0, NULL,
       (SELECT now FROM malote_clock), $4, record_key, record_headers, record_payload
  FROM malote_dead WHERE id = $5
ON CONFLICT (consumer, what) DO NOTHING
