-- Copies what is due to the outbox, in the order in which it was due. $1: at most so many.
INSERT INTO malote_outbox (id, type, topic, key, headers, payload, created_at)
SELECT s.id, s.type, s.topic, s.key, s.headers, s.payload, (SELECT now FROM malote_clock)
  FROM malote_scheduled AS s WHERE s.due_at <= (SELECT now FROM malote_clock)
 ORDER BY s.due_at, s.rowid LIMIT $1
