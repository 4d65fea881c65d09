-- Parks messages at the end of their lanes, in the order given. Headers come in two flat arrays, of which
-- each message has those from `first` to `last`. The foreign key keeps the lane from going meanwhile. What is
-- parked already stays as it is.
INSERT INTO malote.parked (consumer, topic, key, what, event_id, day, type, attempts, first_at, class, error, history,
                           record_key, header_names, header_values, record_payload)
SELECT $1, p.topic, p.key, p.what, p.event_id, p.day, p.type, p.attempts,
       CASE WHEN p.class IS NOT NULL THEN malote.clock() END, p.class, p.error, p.history,
       p.record_key, ($16::text[])[p.first:p.last], ($17::bytea[])[p.first:p.last], p.record_payload
  FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::date[], $7::text[], $8::int4[], $9::text[], $10::text[],
              $11::text[], $12::bytea[], $13::bytea[], $14::int4[], $15::int4[])
       WITH ORDINALITY AS p (topic, key, what, event_id, day, type, attempts, class, error, history, record_key,
                             record_payload, first, last, n)
 ORDER BY p.n
ON CONFLICT (consumer, what) DO NOTHING
