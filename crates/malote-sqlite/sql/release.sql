-- Frees a claim that came to nothing, if it is still the caller's own and has no answer.
-- $1 caller, $2 scope, $3 key, $4 owner.
DELETE FROM malote_idempotency
WHERE caller = $1 AND scope = $2 AND key = $3 AND owner = $4 AND status IS NULL
