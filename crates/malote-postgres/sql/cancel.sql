-- Takes back an envelope that has not been sent.
DELETE FROM malote.scheduled WHERE id = $1
