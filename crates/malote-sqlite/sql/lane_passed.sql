-- How many messages of a lane were handled while something of it was dead. $1 consumer, $2 topic, $3 key.
SELECT passed FROM malote_lane WHERE consumer = $1 AND topic = $2 AND key = $3
