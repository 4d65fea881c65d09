-- Counts a run that is about to begin.
INSERT INTO malote.run AS r (consumer, what, begun) VALUES ($1, $2, 1)
ON CONFLICT (consumer, what) DO UPDATE SET begun = r.begun + 1, at = excluded.at
RETURNING begun
