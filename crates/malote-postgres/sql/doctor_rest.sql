-- Whether rows have gone to a DEFAULT partition, because theirs was not there.
SELECT EXISTS (SELECT FROM malote.outbox_rest) AS outbox, EXISTS (SELECT FROM malote.inbox_rest) AS inbox
