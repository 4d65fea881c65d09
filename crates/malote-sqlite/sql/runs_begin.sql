-- Counts runs that are about to begin, and those that began and never ended. $1 consumer, $2 [what, …].
INSERT INTO malote_run AS r (consumer, what, begun, at)
SELECT DISTINCT $1, each.value, 1, (SELECT now FROM malote_clock) FROM json_each($2) AS each WHERE true
    ON CONFLICT (consumer, what) DO UPDATE SET begun = r.begun + 1, at = excluded.at
RETURNING what, begun
