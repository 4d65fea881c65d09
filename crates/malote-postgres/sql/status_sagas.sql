-- How many sagas of each definition and version are in statuses $1, counted up to $2, and for how long the first of
-- them is unchanged.
WITH RECURSIVE kind AS (
    (SELECT definition, version FROM malote.saga WHERE NOT removed ORDER BY definition, version LIMIT 1)
    UNION ALL
    SELECT n.definition, n.version
      FROM kind k
     CROSS JOIN LATERAL (SELECT s.definition, s.version FROM malote.saga s
                          WHERE NOT s.removed AND (s.definition, s.version) > (k.definition, k.version)
                          ORDER BY s.definition, s.version LIMIT 1) AS n
)
SELECT k.definition, k.version, w.status, c.count, c.age
  FROM kind k CROSS JOIN unnest($1::text[]) AS w (status)
 CROSS JOIN LATERAL (
       SELECT count(*) AS count, extract(epoch FROM malote.clock() - min(f.changed_at))::float8 AS age
         FROM (SELECT s.changed_at FROM malote.saga s
                WHERE NOT s.removed AND s.definition = k.definition AND s.version = k.version AND s.status = w.status
                ORDER BY s.changed_at LIMIT $2) AS f) AS c
 WHERE c.count > 0
