-- Which of these events consumer $1 has handled already.
SELECT i.event_id, i.day
  FROM unnest($2::uuid[], $3::date[]) AS e (event_id, day)
  JOIN malote.inbox i ON i.consumer = $1 AND i.event_id = e.event_id AND i.day = e.day
