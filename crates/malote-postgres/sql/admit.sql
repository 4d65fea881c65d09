-- Remembers that consumer $1 handles these events; returns those that are new.
-- The caller sorts them, and ORDER BY keeps the order: two batches that meet wait for each other in one
-- direction only. A known event is a normal outcome, not an error; and
-- only this key makes it known: a violation of any other rule is one.
INSERT INTO malote.inbox (consumer, event_id, day)
SELECT $1, e.event_id, e.day
  FROM unnest($2::uuid[], $3::date[]) WITH ORDINALITY AS e (event_id, day, n)
 ORDER BY e.n
ON CONFLICT (consumer, event_id, day) DO NOTHING
RETURNING event_id, day
