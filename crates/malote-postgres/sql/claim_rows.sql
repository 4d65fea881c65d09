-- Locks the oldest rows that nobody else has locked, until they are marked. Braces are names.
-- $1 how many at most, $2 ids of rows that are not to be claimed now.
SELECT {ID}::text AS id, {KIND}::text AS kind, {TOPIC}::text AS topic, {KEY}::text AS key, {BYTES} AS payload,
       ({TIME})::timestamptz AS time, current_database()::text AS source
  FROM {TABLE}
 WHERE NOT {ID} = ANY ($2::text[]::{TYPE}[]) {WAITING}
 ORDER BY {ORDER}
 LIMIT $1
   FOR UPDATE SKIP LOCKED
