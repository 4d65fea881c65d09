-- Waits for those who are at the lanes of key $1, and lets nobody else in.
SELECT FROM malote.lane WHERE key = $1 ORDER BY consumer, topic COLLATE "C" FOR UPDATE
