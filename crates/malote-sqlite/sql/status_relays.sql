-- Relays, with their lease and cursor. The janitor's lease is in the same table, and no relay.
SELECT name, incarnation, epoch, high, expires_at - (SELECT now FROM malote_clock) AS ms_left,
       (SELECT coalesce(sum((gap.value ->> 1) - (gap.value ->> 0) + 1), 0) FROM json_each(gaps) AS gap) AS gaps
  FROM malote_relay WHERE name NOT LIKE 'janitor %' ORDER BY name
