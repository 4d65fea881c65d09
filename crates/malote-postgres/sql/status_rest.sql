-- Dead letters of relays, acts on sagas that nobody has dealt with, what is scheduled and how late it is, and the
-- version of the tables.
SELECT (SELECT count(*) FROM malote.dead WHERE by LIKE 'relay %') AS relay_dead,
       (SELECT count(*) FROM malote.saga_act WHERE done_at IS NULL) AS open_acts,
       (SELECT count(*) FROM malote.scheduled) AS scheduled,
       (SELECT extract(epoch FROM malote.clock() - min(due_at))::float8 FROM malote.scheduled
        HAVING min(due_at) <= malote.clock()) AS late_seconds,
       (SELECT coalesce(max(version), 0)::int8 FROM malote.migration) AS tables
