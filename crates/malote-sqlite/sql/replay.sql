-- Copies rows of the outbox to its end, under their own ids and with their own times. $1: [position, …];
-- $2: topic, their own where it is NULL; $3: the consumer that they are meant for, all where it is NULL.
INSERT INTO malote_outbox (id, type, topic, key, aggregate_type, aggregate_id, headers, payload, created_at)
SELECT id, type, coalesce($2, topic), key, aggregate_type, aggregate_id,
       json_patch(json_patch(json_object('time', strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch')),
                             headers),
                  json_object('maloteonlyfor', $3)),
       payload, (SELECT now FROM malote_clock)
  FROM malote_outbox WHERE seq IN (SELECT value FROM json_each($1)) ORDER BY seq
