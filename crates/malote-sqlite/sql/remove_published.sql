-- Removes rows that no relay needs any more, a bounded number, oldest first. Never above what the
-- relays have stored, whatever the caller believes. $1: the caller's floor; $2: at most so many.
DELETE FROM malote_outbox WHERE seq IN (
    SELECT seq FROM malote_outbox
    WHERE seq <= MIN($1, (SELECT MIN(COALESCE((gaps ->> '$[0][0]') - 1, high)) FROM malote_relay))
    ORDER BY seq LIMIT $2)
