-- A group that is not coming back holds nothing any more. ?1: its name.
DELETE FROM consumer_group WHERE name = ?1
