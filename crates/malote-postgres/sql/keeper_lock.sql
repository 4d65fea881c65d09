-- One keeper at a time; the lock ends with the transaction, however that ends.
SELECT pg_try_advisory_xact_lock(hashtextextended('malote keeper malote.', 0)) AS ours
