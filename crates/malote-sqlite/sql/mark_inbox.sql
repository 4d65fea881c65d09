-- Says in the inbox what became of events, and when: how long a row is kept counts from there.
-- $1: consumer; $2: [[event id, day], …]; $3: state.
UPDATE malote_inbox SET state = $3, at = (SELECT now FROM malote_clock)
 WHERE consumer = $1 AND (event_id, day) IN (SELECT each.value ->> 0, each.value ->> 1 FROM json_each($2) AS each)
