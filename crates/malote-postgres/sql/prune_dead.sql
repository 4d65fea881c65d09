-- Removes dead letters that were given up more than $1 microseconds ago, at most $2, the oldest first. One that
-- holds its key stays: only a person lets a key go on.
WITH old AS MATERIALIZED (
    SELECT id, topic, key, event_id, day, CASE WHEN by LIKE 'consumer %' THEN substr(by, 10) END AS consumer
      FROM malote.dead
     WHERE last_at < (SELECT malote.clock()) - $1 * interval '1 microsecond' AND NOT holds_key
     ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
), seen AS (
    UPDATE malote.inbox i SET state = 'discarded' FROM old
     WHERE i.consumer = old.consumer AND i.event_id = old.event_id AND i.day = old.day
), lane AS (
    UPDATE malote.lane l SET dead = l.dead - less.letters
      FROM (SELECT consumer, topic, key, count(*)::int AS letters FROM old GROUP BY 1, 2, 3) AS less
     WHERE l.consumer = less.consumer AND l.topic = less.topic AND l.key = less.key
)
DELETE FROM malote.dead d USING old WHERE d.id = old.id
