-- The last position that was handed out, by anyone, whether or not it was committed; 0 before the first.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM malote.outbox_seq_seq
