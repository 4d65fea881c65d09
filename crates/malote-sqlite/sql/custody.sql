-- Which of these partitions somebody else has and never gave back. $1 consumer, $2 incarnation,
-- $3 [[topic, partition], …].
SELECT c.topic, c."partition" FROM json_each($3) AS each
 CROSS JOIN malote_custody AS c
    ON c.consumer = $1 AND c.topic = each.value ->> 0 AND c."partition" = each.value ->> 1
 WHERE c.incarnation <> $2
