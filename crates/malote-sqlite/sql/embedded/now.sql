-- The log's clock.
SELECT now FROM log_clock
