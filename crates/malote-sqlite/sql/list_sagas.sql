-- Sagas, the longest unchanged first. $1 definition, $2 version (what is NULL chooses all), $3 statuses [name, …],
-- $4 unchanged for so many milliseconds, $5 a step that waits or is open (NULL: any), $6 at most so many.
-- Each definition, version and status is gone into by itself, along the index and no further than $6 rows: a list
-- costs the same however many have ended.
WITH RECURSIVE kind (definition, version) AS (
    SELECT * FROM (SELECT definition, version FROM malote_saga WHERE NOT removed ORDER BY definition, version LIMIT 1)
    UNION ALL
    SELECT n.definition, n.version
      FROM kind AS k JOIN malote_saga AS n
        -- SQLite goes along the index only for what is equal, then greater
        ON n.rowid = coalesce(
           (SELECT s.rowid FROM malote_saga AS s
             WHERE NOT s.removed AND s.definition = k.definition AND s.version > k.version
             ORDER BY s.version LIMIT 1),
           (SELECT s.rowid FROM malote_saga AS s
             WHERE NOT s.removed AND s.definition > k.definition ORDER BY s.definition, s.version LIMIT 1)))
SELECT s.id, s.definition, s.version, s.status, s.reason, s.steps, s.started_at, s.changed_at
  FROM kind AS k CROSS JOIN json_each($3) AS w CROSS JOIN malote_saga AS s
 WHERE ($1 IS NULL OR k.definition = $1) AND ($2 IS NULL OR k.version = $2)
   AND s.rowid IN (
       SELECT f.rowid FROM malote_saga AS f
        WHERE NOT f.removed AND f.definition = k.definition AND f.version = k.version AND f.status = w.value
          AND f.changed_at <= (SELECT now FROM malote_clock) - coalesce($4, 0)
          AND ($5 IS NULL OR EXISTS (SELECT 1 FROM json_each(f.steps) AS step
                WHERE step.value = $5 OR substr(step.value, 1, length($5) + 1) = $5 || '#'))
        ORDER BY f.changed_at LIMIT $6)
 ORDER BY s.changed_at, s.id LIMIT $6
