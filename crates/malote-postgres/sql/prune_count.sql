-- How many rows of $1 would go that are older than $2 microseconds, counted up to $3.
SELECT count(*) AS rows
  FROM (SELECT FROM malote.idempotency
         WHERE $1 = 'idempotency' AND coalesce(done_at, lease_until) < (SELECT malote.clock()) - $2 * interval '1 microsecond'
        UNION ALL
        SELECT FROM malote.dead
         WHERE $1 = 'dead' AND last_at < (SELECT malote.clock()) - $2 * interval '1 microsecond' AND NOT holds_key
        UNION ALL
        SELECT FROM malote.audit a
         WHERE $1 = 'audit' AND at < (SELECT malote.clock()) - $2 * interval '1 microsecond'
           AND NOT (a.outcome = 'begun' AND EXISTS (
               SELECT FROM malote.audit b
                 LEFT JOIN LATERAL (SELECT o.outcome FROM malote.audit o
                                     WHERE o.id > b.id AND o.actor = b.actor AND o.act = b.act
                                       AND o.target = b.target AND o.reason = b.reason
                                     ORDER BY o.id LIMIT 1) AS next ON true
                WHERE b.id <= a.id AND b.outcome = 'begun' AND b.actor = a.actor AND b.act = a.act
                  AND b.target = a.target AND b.reason = a.reason AND coalesce(next.outcome, 'begun') = 'begun'))
        UNION ALL
        SELECT FROM malote.inbox
         WHERE $1 = 'inbox' AND state IN ('done', 'discarded') AND at < (SELECT malote.clock()) - $2 * interval '1 microsecond'
           AND day < (((SELECT malote.clock()) - $2 * interval '1 microsecond') AT TIME ZONE 'UTC')::date
        UNION ALL
        SELECT FROM malote.saga
         WHERE $1 = 'sagas' AND NOT removed AND ended_at IS NOT NULL
           AND ended_at <= (SELECT malote.clock()) - $2 * interval '1 microsecond'
        UNION ALL
        SELECT FROM malote.saga
         WHERE $1 = 'tombstones' AND removed AND ended_at <= (SELECT malote.clock()) - $2 * interval '1 microsecond'
        UNION ALL
        SELECT FROM malote.operation
         WHERE $1 = 'operations' AND at <= (SELECT malote.clock()) - $2 * interval '1 microsecond'
        LIMIT $3) AS old
