-- malote's tables, whether this role may do with them what malote does, and whether it may change them, which
-- only an owner may. The array is in the order of the names that are expected ($1).
SELECT expected.name, c.oid IS NOT NULL AS there,
       coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'), false) AS usable,
       coalesce(pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE'), false) AS owned
  FROM unnest($1::text[]) AS expected (name)
  LEFT JOIN pg_namespace n ON n.nspname = $2
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = expected.name
