-- The history of an instance from its beginning.
SELECT n, at, what, leg, direction, attempt, envelope, reason, actor, trace
  FROM malote_saga_log WHERE saga = $1 ORDER BY n
