-- Writes envelopes to the outbox, in the order given, in one round trip whatever their number.
-- ORDER BY: positions are handed out in this order. No RETURNING: nobody needs the positions here.
INSERT INTO malote.outbox (id, type, topic, key, headers, payload)
SELECT e.id, e.type, e.topic, e.key, e.headers::json, e.payload
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
       WITH ORDINALITY AS e (id, type, topic, key, headers, payload, n)
 ORDER BY e.n
