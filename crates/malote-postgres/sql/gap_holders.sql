-- Who may still fill a gap: every transaction that has written to the outbox holds a lock on it until
-- it ends, a prepared one too (which has no process, so its name is told).
SELECT CASE WHEN l.pid IS NOT NULL
            THEN format('process %s (%s, %s, in a transaction for %s s)', l.pid, coalesce(nullif(a.application_name, ''), 'unnamed'),
                        coalesce(a.state, 'state unknown'), round(coalesce(extract(epoch FROM malote.clock() - a.xact_start), 0)))
            ELSE format('prepared transaction %L (for %s s)', p.gid, round(coalesce(extract(epoch FROM malote.clock() - p.prepared), 0)))
       END AS holder
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_locks id ON l.pid IS NULL AND id.pid IS NULL AND id.virtualtransaction = l.virtualtransaction
                       AND id.locktype = 'transactionid' AND id.mode = 'ExclusiveLock'
  LEFT JOIN pg_prepared_xacts p ON p.transaction = id.transactionid
 WHERE l.relation = 'malote.outbox'::regclass AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY coalesce(a.xact_start, p.prepared)
