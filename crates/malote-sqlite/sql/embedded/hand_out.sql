-- Gives partitions without a living owner to those who should have them. Their former owner's epoch
-- is over with this, so whatever it still acknowledges changes nothing.
UPDATE assignment SET owner = target, epoch = epoch + 1
WHERE consumer_group = ?1 AND owner IS NOT target
  AND (owner IS NULL OR owner NOT IN (SELECT id FROM member WHERE consumer_group = ?1))
