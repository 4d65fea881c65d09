-- Runs have come to an end, whichever.
DELETE FROM malote.run WHERE consumer = $1 AND what = ANY ($2::text[])
