-- Removes what dead letters hold of a key. That they were, when, and of which type stays. $1: key.
UPDATE malote_dead
   SET key = NULL, reason = '(erased)', history = '[]', correlation_id = NULL, trace = NULL, holds_key = 0,
       record_key = NULL, record_headers = '[]', record_payload = NULL
 WHERE key = $1
