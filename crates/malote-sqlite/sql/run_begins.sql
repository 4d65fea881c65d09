-- Counts a run that is about to begin, and those that began and never ended. $1 consumer, $2 what.
INSERT INTO malote_run AS r (consumer, what, begun, at) VALUES ($1, $2, 1, (SELECT now FROM malote_clock))
    ON CONFLICT (consumer, what) DO UPDATE SET begun = r.begun + 1, at = excluded.at
RETURNING begun
