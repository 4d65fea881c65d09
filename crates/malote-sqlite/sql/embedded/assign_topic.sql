-- A group that reads a topic has a position in each of its partitions, at the oldest record first.
-- ?1: group; ?2: topic.
INSERT INTO assignment (consumer_group, partition)
SELECT ?1, id FROM partition WHERE topic = ?2
ON CONFLICT DO NOTHING
