-- Counts runs that are about to begin; everybody takes the rows in the same order.
INSERT INTO malote.run AS r (consumer, what, begun)
SELECT $1, named.what, 1 FROM (SELECT DISTINCT unnest($2::text[]) AS what) AS named ORDER BY named.what COLLATE "C"
ON CONFLICT (consumer, what) DO UPDATE SET begun = r.begun + 1, at = excluded.at
RETURNING what, begun
