-- Makes a lane in which nothing waits, if there is none.
INSERT INTO malote.lane (consumer, topic, key) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
