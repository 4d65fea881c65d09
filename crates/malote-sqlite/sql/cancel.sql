-- Takes back an envelope that is not due yet. $1 id.
DELETE FROM malote_scheduled WHERE id = $1
