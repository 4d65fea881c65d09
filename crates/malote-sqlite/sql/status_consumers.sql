-- What waits and what is dead, by consumer.
WITH parked AS (
    SELECT consumer, count(*) AS messages, count(DISTINCT json_array(topic, key)) AS keys,
           (SELECT now FROM malote_clock) - min(parked_at) AS age
      FROM malote_parked GROUP BY consumer),
held AS (SELECT consumer, count(*) AS keys FROM malote_lane WHERE held GROUP BY consumer),
dead AS (SELECT substr(by, 10) AS consumer, count(*) AS letters FROM malote_dead WHERE by LIKE 'consumer %' GROUP BY by)
SELECT c.consumer, coalesce(p.keys, 0) AS parked_keys, coalesce(p.messages, 0) AS parked_messages, p.age,
       coalesce(h.keys, 0) AS held_keys, coalesce(d.letters, 0) AS dead
  FROM (SELECT consumer FROM parked UNION SELECT consumer FROM held UNION SELECT consumer FROM dead) AS c
  LEFT JOIN parked AS p ON p.consumer = c.consumer
  LEFT JOIN held AS h ON h.consumer = c.consumer
  LEFT JOIN dead AS d ON d.consumer = c.consumer
 ORDER BY c.consumer
