-- A group's number. ?1: name.
SELECT id FROM consumer_group WHERE name = ?1
