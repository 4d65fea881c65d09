-- Rows of the outbox by position, at most $10. Numbers ($1) are positions; who gave up ($2) and the class of a
-- failure ($6) are nothing that a row has, so asking for them finds nothing.
SELECT o.seq, o.id::text AS id, o.type, coalesce(o.topic, o.type) AS topic,
       coalesce(o.key, o.aggregate_id, o.id::text) AS key, o.created_at, octet_length(o.payload)::int8 AS payload_bytes,
       status.published
  FROM malote.outbox o
 CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM malote.relay r WHERE o.seq <= r.high AND NOT r.gaps @> o.seq) AS published)
       AS status
 WHERE ($1::int8[] IS NULL OR o.seq = ANY ($1)) AND $2::text IS NULL AND ($3::text IS NULL OR o.type = $3)
   AND ($4::text IS NULL OR coalesce(o.topic, o.type) = $4)
   AND ($5::text IS NULL OR coalesce(o.key, o.aggregate_id, o.id::text) = $5) AND $6::text IS NULL
   AND ($7::text IS NULL OR o.id::text = $7 OR o.headers ->> 'correlationid' = $7)
   AND ($8::timestamptz IS NULL OR o.created_at >= $8) AND ($9::timestamptz IS NULL OR o.created_at < $9)
   AND (NOT $11 OR NOT status.published)
 ORDER BY o.seq
 LIMIT $10
