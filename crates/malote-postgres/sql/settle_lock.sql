-- Waits for those who are putting something behind. The next statement sees it; nobody else comes.
SELECT FROM malote.lane WHERE consumer = $1 AND topic = $2 AND key = $3 FOR UPDATE
