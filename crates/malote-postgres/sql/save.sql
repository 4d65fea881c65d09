-- Stores the cursor and renews the lease, if the lease is still held: the fence is in the statement.
-- Its own id is returned: its transaction began after the reads before it, so the id is a bound for
-- every gap that they showed.
UPDATE malote.relay
   SET high = $4,
       gaps = (SELECT coalesce(range_agg(int8range(gap.first, gap.last, '[]')), '{}')
                 FROM unnest($5::int8[], $6::int8[]) AS gap (first, last)),
       expires_at = malote.clock() + $7 * interval '1 microsecond'
 WHERE name = $1 AND incarnation = $2 AND epoch = $3
RETURNING pg_current_xact_id()::text::int8 AS bound
