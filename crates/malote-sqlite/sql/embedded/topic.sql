-- The partitions of a topic, by number. ?1: name.
SELECT t.id, p.id FROM topic AS t JOIN partition AS p ON p.topic = t.id WHERE t.name = ?1 ORDER BY p.number
