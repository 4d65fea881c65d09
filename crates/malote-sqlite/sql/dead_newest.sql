-- The number of the latest dead letter.
SELECT coalesce(max(id), 0) FROM malote_dead
