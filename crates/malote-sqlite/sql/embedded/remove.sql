-- Removes records of a range that are older than ?3 milliseconds, oldest first, at most ?4.
DELETE FROM record WHERE at IN (
    SELECT at FROM record
    WHERE at >= ?1 AND at < ?2 AND written_at <= (SELECT now FROM log_clock) - ?3
    ORDER BY at LIMIT ?4)
