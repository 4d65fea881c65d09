-- Who reads what in a group, by age of the membership.
SELECT m.id, mt.topic FROM member AS m JOIN member_topic AS mt ON mt.member = m.id
WHERE m.consumer_group = ?1 ORDER BY m.id
