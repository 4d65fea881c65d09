-- Rows of the outbox to be sent again, by position, above $12 and up to $13: published ones, or else ($11) those that
-- are not. The columns are those of the statement that reads for the relay.
SELECT 0::int8 AS ended_below, o.seq, o.id, o.type, o.topic, coalesce(o.key, o.aggregate_id) AS key, o.headers, o.payload,
       o.created_at, current_database() AS source
  FROM malote.outbox o
 WHERE o.seq > $12 AND o.seq <= $13
   AND ($1::int8[] IS NULL OR o.seq = ANY ($1)) AND $2::text IS NULL AND ($3::text IS NULL OR o.type = $3)
   AND ($4::text IS NULL OR coalesce(o.topic, o.type) = $4)
   AND ($5::text IS NULL OR coalesce(o.key, o.aggregate_id, o.id::text) = $5) AND $6::text IS NULL
   AND ($7::text IS NULL OR o.id::text = $7 OR o.headers ->> 'correlationid' = $7)
   AND ($8::timestamptz IS NULL OR o.created_at >= $8) AND ($9::timestamptz IS NULL OR o.created_at < $9)
   AND $11 <> EXISTS (SELECT FROM malote.relay r WHERE o.seq <= r.high AND NOT r.gaps @> o.seq)
 ORDER BY o.seq
 LIMIT $10
