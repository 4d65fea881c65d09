-- Moves a group's position, if the partition is still the member's own under the same epoch; never back.
-- ?1: group; ?2: partition; ?3: owner; ?4: epoch; ?5: offset of the first record that is not handled.
UPDATE assignment SET next = ?5
WHERE consumer_group = ?1 AND partition = ?2 AND next < ?5 AND owner = ?3 AND epoch = ?4
