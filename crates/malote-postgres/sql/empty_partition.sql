-- Empties a partition whose rows are all published. TRUNCATE locks this partition only, which nobody
-- writes to any more, and gives its space back at once.
TRUNCATE TABLE ONLY malote.NAME
