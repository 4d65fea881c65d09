-- Drops partitions that are empty. This needs the lock on the whole table, for an instant; NOWAIT
-- because whoever waits for it makes every insert wait behind it.
LOCK TABLE ONLY malote.PARENT IN ACCESS EXCLUSIVE MODE NOWAIT;
DROP TABLE NAMES
