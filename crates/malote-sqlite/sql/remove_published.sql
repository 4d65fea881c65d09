-- Removes rows that no relay needs any more and that are old enough, a bounded number, oldest first.
-- Never above what the relays have stored, whatever the caller believes; the janitor's lease is in the
-- same table and has come nowhere. $1: the caller's floor;
-- $2: at most so many; $3: milliseconds to keep.
DELETE FROM malote_outbox WHERE seq IN (
    SELECT seq FROM (
        SELECT seq, created_at FROM malote_outbox
        WHERE seq <= MIN($1, (SELECT MIN(COALESCE((gaps ->> '$[0][0]') - 1, high)) FROM malote_relay
                                  WHERE name NOT LIKE 'janitor %'))
        ORDER BY seq LIMIT $2)
    WHERE created_at <= (SELECT now FROM malote_clock) - $3)
