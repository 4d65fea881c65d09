-- Replication slots, malote's neighbours: it has none of its own. What a slot has not read stays on the disk.
SELECT slot_name::text AS name, active, coalesce(wal_status, 'unknown') AS state,
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                                restart_lsn), 0)::int8 AS kept
  FROM pg_replication_slots
 ORDER BY 1
