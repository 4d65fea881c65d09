-- What waits and what is dead, by consumer.
SELECT coalesce(l.consumer, p.consumer, d.consumer) AS name,
       coalesce(p.keys, 0) AS parked_keys, coalesce(p.messages, 0) AS parked_messages,
       coalesce(l.held, 0) AS held_keys, coalesce(d.letters, 0) AS dead,
       CASE WHEN p.oldest IS NOT NULL
            THEN greatest(0, extract(epoch FROM malote.clock() - p.oldest))::float8 END AS oldest_parked_seconds
  FROM (SELECT consumer, count(*) FILTER (WHERE held) AS held FROM malote.lane GROUP BY 1) AS l
  FULL JOIN (SELECT consumer, count(*) AS messages, count(DISTINCT (topic, key)) AS keys, min(parked_at) AS oldest
               FROM malote.parked GROUP BY 1) AS p ON p.consumer = l.consumer
  FULL JOIN (SELECT substr(by, 10) AS consumer, count(*) AS letters FROM malote.dead WHERE by LIKE 'consumer %' GROUP BY 1)
            AS d ON d.consumer = coalesce(l.consumer, p.consumer)
 WHERE coalesce(p.messages, 0) + coalesce(l.held, 0) + coalesce(d.letters, 0) > 0
 ORDER BY 1
