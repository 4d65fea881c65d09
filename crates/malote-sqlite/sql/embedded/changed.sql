-- Tells a group's members to look at their assignments again.
UPDATE consumer_group SET generation = generation + 1 WHERE id = ?1
