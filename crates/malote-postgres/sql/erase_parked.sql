-- Removes the parked messages of key $1: they are handled no more.
WITH gone AS (
    DELETE FROM malote.parked WHERE key = $1 RETURNING consumer, event_id, day
), seen AS (
    UPDATE malote.inbox i SET state = 'discarded', at = malote.clock() FROM gone
     WHERE i.consumer = gone.consumer AND i.event_id = gone.event_id AND i.day = gone.day
)
SELECT count(*) AS rows FROM gone
