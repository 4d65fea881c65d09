-- One at a time moves what is due: two would each take a part, and the later part might be sent first.
-- The lock ends with the transaction, however that ends.
SELECT pg_try_advisory_xact_lock(hashtextextended('malote timer malote.', 0)) AS ours
