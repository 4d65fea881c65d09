-- Parked messages, lane by lane in their order, at most $10.
SELECT p.n, p.consumer, p.topic, p.key, p.what, p.type, p.attempts, p.parked_at, p.class, p.error, l.held,
       CASE WHEN p.n = (SELECT min(h.n) FROM malote.parked h
                         WHERE h.consumer = p.consumer AND h.topic = p.topic AND h.key = p.key) THEN l.due_at END AS due_at
  FROM malote.parked p
  JOIN malote.lane l ON l.consumer = p.consumer AND l.topic = p.topic AND l.key = p.key
 WHERE ($1::int8[] IS NULL OR p.n = ANY ($1)) AND ($2::text IS NULL OR p.consumer = $2 OR 'consumer ' || p.consumer = $2)
   AND ($3::text IS NULL OR p.type = $3)
   AND ($4::text IS NULL OR p.topic = $4) AND ($5::text IS NULL OR p.key = $5) AND ($6::text IS NULL OR p.class = $6)
   AND ($7::text IS NULL OR p.event_id::text = $7 OR p.what = $7
        OR convert_to($7, 'UTF8') = p.header_values[array_position(p.header_names, 'ce_correlationid')])
   AND ($8::timestamptz IS NULL OR p.parked_at >= $8) AND ($9::timestamptz IS NULL OR p.parked_at < $9)
 ORDER BY p.consumer, p.topic, p.key, p.n
 LIMIT $10
