-- A dead letter that has been acted upon.
DELETE FROM malote.dead WHERE id = $1
