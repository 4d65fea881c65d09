-- What is known of operation $2 of consumer $1. A statement of its own after the lock: its snapshot has to be younger.
SELECT type, topic, key, content_type, payload FROM malote.operation WHERE consumer = $1 AND id = $2
