-- Says in the inbox what became of events. $1: consumer; $2: [[event id, day], …]; $3: state.
UPDATE malote_inbox SET state = $3
 WHERE consumer = $1 AND (event_id, day) IN (SELECT each.value ->> 0, each.value ->> 1 FROM json_each($2) AS each)
