-- Puts dead letter $1 back into the lane ($2, topic, $3) with history $4: in front of the others if it held the key,
-- else at the end. Its attempts count anew; nothing that came with it is changed.
INSERT INTO malote.parked (n, consumer, topic, key, what, event_id, day, type, history,
                           record_key, header_names, header_values, record_payload)
SELECT CASE WHEN d.holds_key THEN coalesce(front.n - 1, nextval('malote.parked_n_seq')) ELSE nextval('malote.parked_n_seq') END,
       $2, d.topic, $3, d.what, d.event_id, $5, d.type, $4, d.record_key, d.header_names, d.header_values, d.record_payload
  FROM malote.dead d
 CROSS JOIN (SELECT min(n) AS n FROM malote.parked p
              WHERE p.consumer = $2 AND p.topic = (SELECT topic FROM malote.dead WHERE id = $1) AND p.key = $3) AS front
 WHERE d.id = $1
ON CONFLICT (consumer, what) DO NOTHING
