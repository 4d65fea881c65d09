-- Whether assignments of a group have changed.
SELECT generation FROM consumer_group WHERE id = ?1
