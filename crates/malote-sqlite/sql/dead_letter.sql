-- A dead letter with its record. $1: id.
SELECT * FROM malote_dead WHERE id = $1
