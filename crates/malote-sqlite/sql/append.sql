-- Writes envelopes to the outbox, in the order of the array, in one statement whatever their number.
-- $1: [{…, "at": place of the payload in $2, counted from 1, "length": its bytes}, …]
-- $2: all payloads one after the other. They travel beside the JSON so that their bytes stay as they are.
-- A part of no bytes is NULL to substr. ORDER BY: positions are handed out in this order.
INSERT INTO malote_outbox (id, type, topic, key, headers, payload, created_at)
SELECT each.value ->> 'id', each.value ->> 'type', each.value ->> 'topic', each.value ->> 'key',
       each.value -> 'headers', coalesce(substr($2, each.value ->> 'at', each.value ->> 'length'), x''),
       (SELECT now FROM malote_clock)
  FROM json_each($1) AS each
 ORDER BY each.key
