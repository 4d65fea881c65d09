-- The offset of a partition's next record; read in the transaction that appends. ?1: partition.
SELECT next FROM partition WHERE id = ?1
