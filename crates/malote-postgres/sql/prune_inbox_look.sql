-- Whether a partition of the inbox holds something that is not done, or was handled within $1 microseconds
-- (an event may come long after its own day). An index each, so that it is a short look.
SELECT EXISTS (SELECT FROM malote.NAME WHERE state IN ('parked', 'dead')) AS open,
       EXISTS (SELECT FROM malote.NAME WHERE at > (SELECT malote.clock()) - $1 * interval '1 microsecond') AS young
