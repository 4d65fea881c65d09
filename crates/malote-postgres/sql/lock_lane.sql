-- Keeps a lane as it is. No attempt at what is parked in it is kept from beginning.
SELECT passed, held, due_at IS NOT NULL AS waits FROM malote.lane WHERE consumer = $1 AND topic = $2 AND key = $3
   FOR NO KEY UPDATE
