-- Sets something aside. The same thing again is the same row, with what is known now.
INSERT INTO malote_dead (by, what, event_id, type, topic, "partition", "offset", reason, attempts,
                         record_key, record_headers, record_payload, first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
        (SELECT now FROM malote_clock), (SELECT now FROM malote_clock))
    ON CONFLICT (by, what) DO UPDATE
   SET reason = excluded.reason, attempts = excluded.attempts, last_at = excluded.last_at
