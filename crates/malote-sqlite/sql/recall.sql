-- What is known of an operation. The write lock keeps whoever else asks about it waiting.
SELECT type, topic, key, content_type, payload FROM malote_operation WHERE consumer = $1 AND id = $2
