-- Writes an envelope that is due at $2, or $3 microseconds from now by the database's clock.
INSERT INTO malote.scheduled (id, due_at, type, topic, key, headers, payload)
VALUES ($1, coalesce($2::timestamptz, malote.clock() + $3 * interval '1 microsecond'), $4, $5, $6, $7::json, $8)
