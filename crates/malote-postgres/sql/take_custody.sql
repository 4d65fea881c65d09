-- Takes partitions for incarnation $2; returns those that somebody else had not given back.
WITH old AS MATERIALIZED (
    SELECT c.topic, c."partition", c.incarnation
      FROM malote.custody c
      JOIN unnest($3::text[], $4::int4[]) AS asked (topic, "partition")
        ON c.topic = asked.topic AND c."partition" = asked."partition"
     WHERE c.consumer = $1
     ORDER BY c.topic, c."partition"
       FOR UPDATE OF c
), taken AS (
    INSERT INTO malote.custody (consumer, topic, "partition", incarnation)
    SELECT DISTINCT $1, asked.topic, asked."partition", $2::uuid
      FROM unnest($3::text[], $4::int4[]) AS asked (topic, "partition")
     ORDER BY 2, 3
    ON CONFLICT (consumer, topic, "partition") DO UPDATE SET incarnation = excluded.incarnation
)
SELECT topic, "partition" FROM old WHERE incarnation <> $2
