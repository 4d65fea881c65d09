-- Renews a member's lease; no row means that it was taken for dead. ?1: member; ?2: milliseconds.
UPDATE member SET expires_at = (SELECT now FROM log_clock) + ?2 WHERE id = ?1
