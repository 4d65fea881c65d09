-- Ended events whose whole day is older than they are kept, the oldest first; one that is parked or dead
-- is not among them, however old. Nor is one that was handled within that time: an event may come long after
-- its own day (or have no time at all), and a duplicate of it as long after that.
-- $1: milliseconds to keep; $2: at most so many.
SELECT consumer, event_id, day FROM malote_inbox
 WHERE state IN ('done', 'discarded') AND day < date(((SELECT now FROM malote_clock) - $1) / 1000, 'unixepoch')
   AND at <= (SELECT now FROM malote_clock) - $1
 ORDER BY at LIMIT $2
