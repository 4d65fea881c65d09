-- How long until the next envelope is due, in microseconds; 0 for one that is late.
SELECT greatest(0, extract(epoch FROM due_at - malote.clock()) * 1000000)::int8 AS next
  FROM malote.scheduled ORDER BY due_at, id LIMIT 1
