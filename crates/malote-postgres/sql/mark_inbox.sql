-- Says of events what became of them, and when: how long a row is kept counts from there.
UPDATE malote.inbox i
   SET state = $4, at = malote.clock()
  FROM unnest($2::uuid[], $3::date[]) AS e (event_id, day)
 WHERE i.consumer = $1 AND i.event_id = e.event_id AND i.day = e.day
