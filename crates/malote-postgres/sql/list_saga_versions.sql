-- For how long no process has said that it has code for a version: one that is under way and was not heard of for
-- minutes stands still.
SELECT definition, version, extract(epoch FROM malote.clock() - seen_at)::float8 AS age
  FROM malote.saga_definition ORDER BY definition, version
