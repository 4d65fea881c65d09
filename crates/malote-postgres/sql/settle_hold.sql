-- Holds a lane until a person has decided about its dead letter.
UPDATE malote.lane SET held = true, due_at = NULL WHERE consumer = $1 AND topic = $2 AND key = $3
