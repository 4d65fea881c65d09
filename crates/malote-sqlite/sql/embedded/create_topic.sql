-- A new topic. ?1: name; ?2: how many partitions.
INSERT INTO topic (name, partitions) VALUES (?1, ?2)
