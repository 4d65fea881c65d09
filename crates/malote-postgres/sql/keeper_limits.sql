-- Whoever waits for a lock makes others wait behind it, and whoever holds one too: neither for long.
SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '500ms'
