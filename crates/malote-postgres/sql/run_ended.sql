-- A run has come to an end, whichever.
DELETE FROM malote.run WHERE consumer = $1 AND what = $2
