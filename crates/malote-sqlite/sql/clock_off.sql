-- By how many milliseconds the clock that processes compare is off the machine's.
SELECT now - CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM malote_clock
