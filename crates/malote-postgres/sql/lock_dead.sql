-- A dead letter that is to be acted upon, and what time it is. Nobody else acts upon it meanwhile.
SELECT by, what, event_id, day, type, topic, key, reason, history, passed_before, holds_key, malote.clock() AS now,
       record_key, header_names, header_values, record_payload
  FROM malote.dead WHERE id = $1 FOR UPDATE
