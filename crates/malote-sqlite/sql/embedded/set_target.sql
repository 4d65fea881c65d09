-- Who should have a partition from now on. ?1: group; ?2: partition; ?3: member or nobody.
UPDATE assignment SET target = ?3 WHERE consumer_group = ?1 AND partition = ?2
