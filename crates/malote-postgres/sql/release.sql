-- Frees a claim that came to nothing.
DELETE FROM malote.idempotency WHERE request = sha256($1) AND owner = $2 AND status IS NULL
