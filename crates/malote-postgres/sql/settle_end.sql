-- Nothing is parked in a lane any more: it goes, unless a dead letter of it is to be remembered.
WITH gone AS (
    DELETE FROM malote.lane WHERE consumer = $1 AND topic = $2 AND key = $3 AND dead <= 0 AND NOT held
)
UPDATE malote.lane SET due_at = NULL WHERE consumer = $1 AND topic = $2 AND key = $3 AND (dead > 0 OR held)
