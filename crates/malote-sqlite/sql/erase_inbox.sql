-- What was parked of a key was not handled and never will be; should it come again, it is known. $1: key.
UPDATE malote_inbox SET state = 'discarded', at = (SELECT now FROM malote_clock)
 WHERE (consumer, event_id, day) IN (
    SELECT consumer, event_id, day FROM malote_parked WHERE key = $1 AND event_id IS NOT NULL)
