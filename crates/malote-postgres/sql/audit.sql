-- Writes down who did what to which, why, and what came of it.
INSERT INTO malote.audit (actor, act, target, reason, outcome) VALUES ($1, $2, $3, $4, $5)
