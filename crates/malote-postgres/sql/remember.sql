-- Writes down the answer to an operation; what is known already stays. $1 consumer, $2 operation, $3 type, $4 topic,
-- $5 key, $6 content type, $7 payload.
INSERT INTO malote.operation (consumer, id, type, topic, key, content_type, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (consumer, id) DO NOTHING
