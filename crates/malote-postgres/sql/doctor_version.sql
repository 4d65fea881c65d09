-- The version of the tables.
SELECT coalesce(max(version), 0)::int8 AS version FROM malote.migration
