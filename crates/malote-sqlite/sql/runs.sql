-- Runs of these that have begun and not ended. $1 consumer, $2 [what, …].
SELECT what, begun FROM malote_run WHERE consumer = $1 AND what IN (SELECT value FROM json_each($2))
