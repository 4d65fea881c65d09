-- Adds to the history of an instance. $1 the instance, $2 trace, and of each entry $3 n, $4 what, $5 leg,
-- $6 direction, $7 attempt, $8 envelope, $9 reason, $10 actor.
INSERT INTO malote.saga_log (saga, n, what, leg, direction, attempt, envelope, reason, actor, trace)
SELECT $1, e.*, $2
  FROM unnest($3::int8[], $4::text[], $5::text[], $6::text[], $7::int8[], $8::uuid[], $9::text[], $10::text[]) AS e
