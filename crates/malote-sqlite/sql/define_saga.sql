-- Writes down that a process has code for a definition. $1 definition, $2 version, $3 outline.
INSERT INTO malote_saga_definition (definition, version, outline, seen_at)
VALUES ($1, $2, $3, (SELECT now FROM malote_clock))
ON CONFLICT (definition, version) DO UPDATE SET outline = excluded.outline, seen_at = excluded.seen_at
