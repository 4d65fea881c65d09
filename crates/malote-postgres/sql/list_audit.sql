-- Acts of people, the latest first, at most $1.
SELECT id, at, actor, act, target, reason, outcome FROM malote.audit ORDER BY id DESC LIMIT $1
