-- Writes down what a person did, in the transaction that does it. $1 actor, $2 act, $3 target, $4 reason,
-- $5 outcome.
INSERT INTO malote_audit (at, actor, act, target, reason, outcome)
VALUES ((SELECT now FROM malote_clock), $1, $2, $3, $4, $5)
