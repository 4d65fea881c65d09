-- Members of a group whose lease is over are gone.
DELETE FROM member WHERE consumer_group = ?1 AND expires_at <= (SELECT now FROM log_clock)
