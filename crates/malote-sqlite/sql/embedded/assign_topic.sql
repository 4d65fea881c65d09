-- A group that reads a topic has a position in each of its partitions: at the oldest record that is left,
-- or where the next one will lie. ?1: group; ?2: topic.
INSERT INTO assignment (consumer_group, partition, next)
SELECT ?1, p.id, coalesce((SELECT r.at - (p.id << 40) FROM record AS r
                            WHERE r.at >= p.id << 40 AND r.at < (p.id + 1) << 40 ORDER BY r.at LIMIT 1), p.next)
  FROM partition AS p WHERE p.topic = ?2
ON CONFLICT DO NOTHING
