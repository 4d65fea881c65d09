-- Gives the lease back: the next may take it at once, and its old holder can change nothing any more.
UPDATE malote.relay
   SET incarnation = '00000000-0000-0000-0000-000000000000', expires_at = 'epoch'
 WHERE name = $1 AND incarnation = $2 AND epoch = $3
