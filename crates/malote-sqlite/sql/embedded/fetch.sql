-- Records of a partition from one place on, below another, in order: a range of the b-tree.
SELECT at, key, headers, payload FROM record WHERE at >= ?1 AND at < ?2 ORDER BY at LIMIT ?3
