-- A new member. ?1: group; ?2: milliseconds of its lease.
INSERT INTO member (consumer_group, expires_at) VALUES (?1, (SELECT now FROM log_clock) + ?2)
