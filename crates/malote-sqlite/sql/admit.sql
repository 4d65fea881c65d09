-- Remembers that a consumer handles these events; returns those that are new. The conflict is named:
-- only the inbox's own key means that an event is known, any other constraint is an error.
-- $1: consumer; $2: [[event id, day], …]. `WHERE true` keeps ON CONFLICT apart from a join's ON.
INSERT INTO malote_inbox (consumer, event_id, day, at)
SELECT $1, each.value ->> 0, each.value ->> 1, (SELECT now FROM malote_clock)
  FROM json_each($2) AS each WHERE true
    ON CONFLICT (consumer, event_id, day) DO NOTHING
RETURNING event_id, day
