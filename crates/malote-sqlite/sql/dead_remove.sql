-- Takes a dead letter out. $1: id.
DELETE FROM malote_dead WHERE id = $1
