-- Runs have ended, whichever way. $1 consumer, $2 [what, …].
DELETE FROM malote_run WHERE consumer = $1 AND what IN (SELECT value FROM json_each($2))
