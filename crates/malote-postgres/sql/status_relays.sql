-- Who leads, for how long still, and how far each relay has come. The janitor's lease is in the same
-- table, and no relay.
SELECT name, nullif(incarnation, '00000000-0000-0000-0000-000000000000') AS incarnation, epoch, high,
       CASE WHEN expires_at > malote.clock() THEN extract(epoch FROM expires_at - malote.clock())::float8 END AS lease_seconds,
       (SELECT coalesce(sum(upper(gap) - lower(gap)), 0)::int8 FROM unnest(gaps) AS gap) AS gaps
  FROM malote.relay
 WHERE name NOT LIKE 'janitor %'
 ORDER BY name
