-- Parks messages at the end of their lanes, in the order of the array. The same one again is the same row.
-- $1: consumer; $2: [{"topic", "key", "what", …}, …]; places of bytes in $3 are counted from 1.
-- $3: record keys and payloads one after the other; they travel beside the JSON so that they stay as they are.
-- A part of no bytes is NULL to substr.
INSERT INTO malote_parked (consumer, topic, key, what, event_id, day, type, attempts, first_at, parked_at,
                           class, error, history, record_key, record_headers, record_payload)
SELECT $1, v ->> 'topic', v ->> 'key', v ->> 'what', v ->> 'event_id', v ->> 'day', v ->> 'type',
       v ->> 'attempts', CASE WHEN v ->> 'class' IS NOT NULL THEN now END, now, v ->> 'class', v ->> 'error',
       v ->> 'history', CASE WHEN v ->> 'key_at' IS NOT NULL THEN coalesce(substr($3, v ->> 'key_at', v ->> 'key_length'), x'') END,
       v ->> 'headers', CASE WHEN v ->> 'at' IS NOT NULL THEN coalesce(substr($3, v ->> 'at', v ->> 'length'), x'') END
  FROM (SELECT each.key AS i, each.value AS v, (SELECT now FROM malote_clock) AS now FROM json_each($2) AS each)
 WHERE true ORDER BY i
    ON CONFLICT (consumer, what) DO NOTHING
