-- Gives back whatever a process holds. $1 consumer, $2 incarnation.
DELETE FROM malote_custody WHERE consumer = $1 AND incarnation = $2
