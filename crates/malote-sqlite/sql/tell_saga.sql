-- Adds to the history of an instance. $1 the instance, $2 trace, $3 [{n, what, leg, direction, attempt, envelope,
-- reason, actor}, …].
INSERT INTO malote_saga_log (saga, n, at, what, leg, direction, attempt, envelope, reason, actor, trace)
SELECT $1, e.value ->> 'n', (SELECT now FROM malote_clock), e.value ->> 'what', e.value ->> 'leg',
       e.value ->> 'direction', e.value ->> 'attempt', e.value ->> 'envelope', e.value ->> 'reason',
       e.value ->> 'actor', $2
  FROM json_each($3) AS e
