-- Takes out of dead letters what they hold of key $1: that something was given up, when and by whom stays.
UPDATE malote.dead
   SET key = NULL, record_key = NULL, header_names = '{}', header_values = '{}', record_payload = NULL, reason = 'erased',
       history = '[]', correlation_id = NULL, trace = NULL, holds_key = false
 WHERE key = $1 OR record_key = convert_to($2, 'UTF8')
