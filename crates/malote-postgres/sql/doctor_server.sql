-- What the server is, how it is set, and what it lets us see.
SELECT current_setting('server_version_num')::int4 AS version,
       extract(epoch FROM clock_timestamp())::float8 AS now,
       pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync,
       current_setting('full_page_writes')::bool AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS standbys,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('max_connections')::int8 AS most,
       current_setting('superuser_reserved_connections')::int8 AS reserved,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_others
