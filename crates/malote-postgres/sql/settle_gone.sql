-- Takes the head $5 out of its lane, if the lane is still claimed under epoch $4, and says in the inbox what
-- became of it ($6), and when: how long its row is kept counts from there. One that was handled counts as newer
-- than the dead letters of its key.
WITH lane AS MATERIALIZED (
    SELECT passed FROM malote.lane WHERE consumer = $1 AND topic = $2 AND key = $3 AND epoch = $4 FOR NO KEY UPDATE
), head AS (
    DELETE FROM malote.parked p USING lane WHERE p.n = $5 AND p.consumer = $1 RETURNING p.event_id, p.day
), seen AS (
    UPDATE malote.inbox i SET state = $6, at = malote.clock() FROM head
     WHERE i.consumer = $1 AND i.event_id = head.event_id AND i.day = head.day
), passed AS (
    UPDATE malote.lane l SET passed = l.passed + 1
      FROM head
     WHERE l.consumer = $1 AND l.topic = $2 AND l.key = $3 AND l.dead > 0 AND $6 = 'done'
)
SELECT true AS gone FROM head
