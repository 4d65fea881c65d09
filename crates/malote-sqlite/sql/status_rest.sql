-- Dead letters of relays, acts on sagas that nobody has dealt with, and what is not due yet, with the lateness of
-- the oldest that is.
SELECT (SELECT count(*) FROM malote_dead WHERE by LIKE 'relay %') AS relay_dead,
       (SELECT count(*) FROM malote_saga_act WHERE done_at IS NULL) AS open_acts,
       (SELECT count(*) FROM malote_scheduled) AS scheduled,
       (SELECT max((SELECT now FROM malote_clock) - min(due_at), 0) FROM malote_scheduled
         WHERE due_at <= (SELECT now FROM malote_clock)) AS late
