-- Locks these lanes of consumer $1 for change, those that are not there made free, in the one order in which
-- everybody locks lanes. Nothing is changed in those that are there: to lock them is all that is wanted.
INSERT INTO malote.lane AS l (consumer, topic, key)
SELECT $1, asked.topic, asked.key
  FROM unnest($2::text[], $3::text[]) AS asked (topic, key)
 ORDER BY asked.topic COLLATE "C", asked.key COLLATE "C"
ON CONFLICT (consumer, topic, key) DO UPDATE SET dead = l.dead WHERE false
