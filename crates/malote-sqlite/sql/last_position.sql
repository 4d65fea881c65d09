-- The last position of the outbox that was handed out.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'malote_outbox'), 0)
