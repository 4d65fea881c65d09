-- Fills the bucket of consumer $1 by $2 tokens a second up to $3, and says what is in it. Its lock makes
-- those who claim for one consumer take turns. The clock is read under that lock (a default would be read
-- before it, and whoever waited would turn the bucket's time back: filled twice). A clock that was set back
-- takes nothing away.
INSERT INTO malote.budget AS b (consumer, tokens)
VALUES ($1, $3)
ON CONFLICT (consumer) DO UPDATE
   SET tokens = least($3, b.tokens + $2 * greatest(0, extract(epoch FROM malote.clock() - b.at)::float8)),
       at = malote.clock()
RETURNING tokens
