-- Gives back all that incarnation $2 holds.
DELETE FROM malote.custody WHERE consumer = $1 AND incarnation = $2
