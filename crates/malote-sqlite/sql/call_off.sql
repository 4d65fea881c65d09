-- Calls an operation off that has not come yet; an answer that was given stays. $1 consumer, $2 operation.
INSERT INTO malote_operation (consumer, id, at) VALUES ($1, $2, (SELECT now FROM malote_clock))
ON CONFLICT (consumer, id) DO NOTHING
