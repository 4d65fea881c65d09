-- Moves what is due to the outbox, in the order in which it was due, at most $1. What somebody is taking
-- back in this instant is left out. The clock is asked once, so that the index is used.
WITH due AS MATERIALIZED (
    SELECT id FROM malote.scheduled WHERE due_at <= (SELECT malote.clock()) ORDER BY due_at, id LIMIT $1
       FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM malote.scheduled s USING due WHERE s.id = due.id RETURNING s.*
)
INSERT INTO malote.outbox (id, type, topic, key, headers, payload)
SELECT id, type, topic, key, headers, payload FROM moved ORDER BY due_at, id
