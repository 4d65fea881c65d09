-- Calls an operation off that has not come yet; an answer that was given stays. $1 consumer, $2 operation.
INSERT INTO malote.operation (consumer, id) VALUES ($1, $2)
ON CONFLICT (consumer, id) DO NOTHING
