-- How many sagas of each definition and version are in these statuses, and for how long the first of them is
-- unchanged, in milliseconds. $1 [name, …], $2: counted no further than this.
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
SELECT * FROM (
    SELECT k.definition, k.version, w.value AS status,
           (SELECT count(*) FROM (SELECT 1 FROM malote_saga AS s
             WHERE NOT s.removed AND s.definition = k.definition AND s.version = k.version AND s.status = w.value
             LIMIT $2)) AS count,
           (SELECT now FROM malote_clock)
             - (SELECT min(s.changed_at) FROM malote_saga AS s
                 WHERE NOT s.removed AND s.definition = k.definition AND s.version = k.version AND s.status = w.value)
             AS age
      FROM kind AS k CROSS JOIN json_each($1) AS w)
 WHERE count > 0
