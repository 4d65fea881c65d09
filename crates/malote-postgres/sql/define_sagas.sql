-- Writes down that a process has code for definitions. $1 names, $2 versions, $3 outlines; in one order for all, so
-- that processes that start together do not wait in a circle.
INSERT INTO malote.saga_definition (definition, version, outline)
SELECT DISTINCT ON (1, 2) * FROM unnest($1::text[], $2::int8[], $3::text[]) ORDER BY 1, 2
ON CONFLICT (definition, version) DO UPDATE SET outline = excluded.outline, seen_at = malote.clock()
