-- The version of malote's tables.
SELECT coalesce(max(number), 0) FROM malote_migration
