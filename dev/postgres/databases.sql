-- Each service owns its data: a database each, in one server. For psql; run
-- again, it makes those that are missing.
SELECT format('CREATE DATABASE %I', name)
  FROM unnest(ARRAY['payment', 'fraud', 'ledger', 'notification', 'order', 'inventory', 'billing', 'shipping']) AS name
 WHERE name NOT IN (SELECT datname FROM pg_database)
\gexec
