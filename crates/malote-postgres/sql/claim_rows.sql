-- Locks the oldest rows that nobody else has locked, until they are marked. Braces are names.
SELECT {ID}::text AS id, {KIND}::text AS kind, {TOPIC}::text AS topic, {KEY}::text AS key, {BYTES} AS payload,
       ({TIME})::timestamptz AS time, current_database()::text AS source
  FROM {TABLE} {WAITING}
 ORDER BY {ORDER}
 LIMIT $1
   FOR UPDATE SKIP LOCKED
