-- How many second and later attempts a consumer may make now, all of its processes together: the bucket
-- fills with time, by one clock. $1 consumer, $2 a second, $3 what it holds.
INSERT INTO malote_budget AS b (consumer, tokens, at) VALUES ($1, $3, (SELECT now FROM malote_clock))
    ON CONFLICT (consumer) DO UPDATE
   SET tokens = min($3, b.tokens + max(excluded.at - b.at, 0) * $2 / 1000.0), at = excluded.at
RETURNING tokens
