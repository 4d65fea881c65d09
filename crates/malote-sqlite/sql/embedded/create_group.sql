-- A group that is new. ?1: name.
INSERT INTO consumer_group (name) VALUES (?1)
