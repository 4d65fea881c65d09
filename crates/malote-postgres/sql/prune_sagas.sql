-- Of sagas that ended more than $1 microseconds ago, at most $2, the oldest first, the tombstone stays, which a late
-- second start meets. What people asked of them goes where somebody has dealt with it; audit still tells of it.
WITH old AS MATERIALIZED (
    SELECT id FROM malote.saga
     WHERE NOT removed AND ended_at IS NOT NULL
       AND ended_at <= (SELECT malote.clock()) - $1 * interval '1 microsecond'
     ORDER BY ended_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
), told AS (
    DELETE FROM malote.saga_log l USING old WHERE l.saga = old.id
), asked AS (
    DELETE FROM malote.saga_act a USING old WHERE a.saga = old.id AND a.done_at IS NOT NULL
)
UPDATE malote.saga s SET removed = true, state = '', legs = '[]', steps = '[]', reason = NULL
  FROM old WHERE s.id = old.id
