-- Takes partitions. $1 consumer, $2 incarnation, $3 [[topic, partition], …].
INSERT INTO malote_custody (consumer, topic, "partition", incarnation)
SELECT $1, each.value ->> 0, each.value ->> 1, $2 FROM json_each($3) AS each WHERE true
    ON CONFLICT (consumer, topic, "partition") DO UPDATE SET incarnation = excluded.incarnation
