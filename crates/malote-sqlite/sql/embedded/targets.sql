-- Who should have which partition of a group.
SELECT a.partition, p.topic, a.target FROM assignment AS a JOIN partition AS p ON p.id = a.partition
WHERE a.consumer_group = ?1 ORDER BY p.topic, p.number
