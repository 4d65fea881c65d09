-- Dead letters in the order in which they were given up, at most $10, without their records.
SELECT d.id, d.by, d.what, d.type, d.topic, d.key, d."partition", d."offset", d.class, d.reason, d.attempts, d.history,
       d.correlation_id, d.trace, d.first_at, d.last_at, d.holds_key, octet_length(d.record_payload)::int8 AS payload_bytes,
       greatest(0, coalesce(l.passed, 0) - d.passed_before) AS newer
  FROM malote.dead d
  LEFT JOIN malote.lane l ON 'consumer ' || l.consumer = d.by AND l.topic = d.topic AND l.key = d.key
 WHERE ($1::int8[] IS NULL OR d.id = ANY ($1)) AND ($2::text IS NULL OR d.by = $2) AND ($3::text IS NULL OR d.type = $3)
   AND ($4::text IS NULL OR d.topic = $4) AND ($5::text IS NULL OR d.key = $5) AND ($6::text IS NULL OR d.class = $6)
   AND ($7::text IS NULL OR d.event_id::text = $7 OR d.correlation_id = $7)
   AND ($8::timestamptz IS NULL OR d.last_at >= $8) AND ($9::timestamptz IS NULL OR d.last_at < $9)
 ORDER BY d.id
 LIMIT $10
