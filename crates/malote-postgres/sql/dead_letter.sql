-- What is in a dead letter.
SELECT d.event_id, d.day, d.record_key, d.header_names, d.header_values, d.record_payload FROM malote.dead d WHERE d.id = $1
