-- One dead letter more in a lane; a lane that is made for it is free for what comes next.
INSERT INTO malote.lane AS l (consumer, topic, key, dead) VALUES ($1, $2, $3, 1)
ON CONFLICT (consumer, topic, key) DO UPDATE SET dead = l.dead + 1
