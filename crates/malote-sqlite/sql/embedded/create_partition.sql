-- A partition of a new topic. ?1: topic; ?2: number.
INSERT INTO partition (topic, number) VALUES (?1, ?2)
