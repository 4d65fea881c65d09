-- For looks at the tables: along their indexes, whatever the statistics say, and not for ever.
SET LOCAL enable_seqscan = off; SET LOCAL statement_timeout = '20s'; SET LOCAL lock_timeout = '2s'
