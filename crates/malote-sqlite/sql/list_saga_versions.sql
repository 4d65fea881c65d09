-- For how long no process has said that it has code for a version: one that is under way and was not heard of for
-- minutes stands still.
SELECT definition, version, (SELECT now FROM malote_clock) - seen_at AS age
  FROM malote_saga_definition ORDER BY definition, version
