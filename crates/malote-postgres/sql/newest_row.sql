-- Whether the newest row of a partition is younger than $1 microseconds. Positions and times are given out
-- together, so the last position tells; there is an index for it.
SELECT created_at > malote.clock() - $1 * interval '1 microsecond' AS young FROM malote.NAME ORDER BY seq DESC LIMIT 1
