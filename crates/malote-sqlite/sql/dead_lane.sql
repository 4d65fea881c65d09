-- Counts a dead letter of a lane. $1 consumer, $2 topic, $3 key.
INSERT INTO malote_lane AS l (consumer, topic, key, dead) VALUES ($1, $2, $3, 1)
    ON CONFLICT (consumer, topic, key) DO UPDATE SET dead = l.dead + 1
