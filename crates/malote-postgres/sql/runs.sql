-- Runs of these that have begun and not ended.
SELECT what, begun FROM malote.run WHERE consumer = $1 AND what = ANY ($2::text[])
