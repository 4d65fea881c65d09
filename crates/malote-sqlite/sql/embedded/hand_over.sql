-- An owner gives a partition to whoever should have it. ?1: group; ?2: partition; ?3: owner; ?4: epoch.
UPDATE assignment SET owner = target, epoch = epoch + 1
WHERE consumer_group = ?1 AND partition = ?2 AND owner = ?3 AND epoch = ?4 AND target IS NOT ?3
