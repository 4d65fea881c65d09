-- Records the answer, if the claim is still $2's and has none; touches no row otherwise.
UPDATE malote.idempotency
   SET status = $3, headers = $4::json, body = $5, done_at = malote.clock()
 WHERE request = sha256($1) AND owner = $2 AND status IS NULL
