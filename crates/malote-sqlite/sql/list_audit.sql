-- What people did, the latest first. $1: at most so many.
SELECT id, at, actor, act, target, reason, outcome FROM malote_audit ORDER BY id DESC LIMIT $1
