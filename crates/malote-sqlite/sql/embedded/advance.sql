-- Offsets up to ?2 are taken. ?1: partition.
UPDATE partition SET next = ?2 WHERE id = ?1
