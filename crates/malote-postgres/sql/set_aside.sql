-- Sets aside what was given up. The same thing given up again is the same row, with its newest reason.
INSERT INTO malote.dead (by, what, event_id, type, topic, "partition", "offset", reason, attempts,
                         record_key, header_names, header_values, record_payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (by, what) DO UPDATE
   SET reason = excluded.reason, attempts = greatest(dead.attempts, excluded.attempts), last_at = malote.clock()
