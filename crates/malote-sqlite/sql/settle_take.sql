-- Takes the head out of its lane, if the lane is still claimed by whoever tried it.
-- $1 n, $2 consumer, $3 topic, $4 key, $5 epoch.
DELETE FROM malote_parked WHERE n = $1 AND EXISTS (
    SELECT 1 FROM malote_lane WHERE consumer = $2 AND topic = $3 AND key = $4 AND epoch = $5)
