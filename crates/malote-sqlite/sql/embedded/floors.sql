-- Below which offset of each partition every group has acknowledged; all of it where there is no group.
SELECT p.id, coalesce((SELECT min(a.next) FROM assignment AS a WHERE a.partition = p.id), p.next) FROM partition AS p
