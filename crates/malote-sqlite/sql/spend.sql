-- Takes from the bucket. $1 consumer, $2 how many.
UPDATE malote_budget SET tokens = tokens - $2 WHERE consumer = $1
