-- Who keeps old row versions alive the longest: a transaction or a snapshot, a prepared transaction, a replication
-- slot. A slot has no time, but an age in transactions: it is told when nothing else is older.
SELECT who, seconds
  FROM (SELECT format('process %s (%s, %s, in a transaction)', pid, coalesce(nullif(application_name, ''), 'unnamed'),
                      coalesce(state, 'state unknown')) AS who,
               extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
          FROM pg_stat_activity
         WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
           AND backend_type = 'client backend'
        UNION ALL
        SELECT format('prepared transaction %L', gid), extract(epoch FROM clock_timestamp() - prepared)::float8
          FROM pg_prepared_xacts WHERE database = current_database()
        UNION ALL
        SELECT format('replication slot %L (an old snapshot, %s transactions ago)', slot_name,
                      greatest(age(xmin), age(catalog_xmin))), 0::float8
          FROM pg_replication_slots WHERE (xmin IS NOT NULL OR (catalog_xmin IS NOT NULL AND database = current_database()))
       ) AS holder
 ORDER BY seconds DESC
 LIMIT 1
