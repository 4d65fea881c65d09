-- What a member has. ?1: group; ?2: member.
SELECT a.partition, t.name, p.number, a.next, a.epoch, a.target IS NOT ?2
FROM assignment AS a JOIN partition AS p ON p.id = a.partition JOIN topic AS t ON t.id = p.topic
WHERE a.consumer_group = ?1 AND a.owner = ?2
