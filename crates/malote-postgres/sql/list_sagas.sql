-- Sagas, the longest unchanged first. $1 definition, $2 version (what is NULL chooses all), $3 statuses, $4 unchanged
-- for so many microseconds, $5 a step that waits or is open (NULL: any), $6 at most so many.
-- Each definition, version and status is gone into by itself, along the index and no further than $6 rows: a list
-- costs the same however many have ended.
WITH RECURSIVE kind AS (
    (SELECT definition, version FROM malote.saga WHERE NOT removed ORDER BY definition, version LIMIT 1)
    UNION ALL
    SELECT n.definition, n.version
      FROM kind k
     CROSS JOIN LATERAL (SELECT s.definition, s.version FROM malote.saga s
                          WHERE NOT s.removed AND (s.definition, s.version) > (k.definition, k.version)
                          ORDER BY s.definition, s.version LIMIT 1) AS n
)
SELECT s.*
  FROM kind k CROSS JOIN unnest($3::text[]) AS w (status)
 CROSS JOIN LATERAL (
       SELECT f.id, f.definition, f.version, f.status, f.reason, f.steps, f.started_at, f.changed_at
         FROM malote.saga f
        WHERE NOT f.removed AND f.definition = k.definition AND f.version = k.version AND f.status = w.status
          AND f.changed_at <= (SELECT malote.clock()) - $4::float8 * interval '1 microsecond'
          AND ($5::text IS NULL OR EXISTS (SELECT FROM json_array_elements_text(f.steps::json) AS step
                WHERE step = $5 OR starts_with(step, $5 || '#')))
        ORDER BY f.changed_at LIMIT $6) AS s
 WHERE ($1::text IS NULL OR k.definition = $1) AND ($2::int8 IS NULL OR k.version = $2)
 ORDER BY s.changed_at, s.id LIMIT $6
