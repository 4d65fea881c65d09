-- Takes the lease of relay $1 for incarnation $2, or renews it; else says how long it is still held.
-- The UPDATE locks nothing when the lease is somebody else's: standbys may ask as often as they like.
-- The epoch grows when the lease changes hands, so that whoever held it before is told apart.
WITH taken AS (
    UPDATE malote.relay
       SET epoch = epoch + CASE WHEN incarnation = $2 THEN 0 ELSE 1 END,
           incarnation = $2,
           expires_at = malote.clock() + $3 * interval '1 microsecond'
     WHERE name = $1 AND (incarnation = $2 OR expires_at <= malote.clock())
    RETURNING epoch, high, gaps
)
SELECT taken.epoch, taken.high,
       ARRAY(SELECT lower(gap) FROM unnest(taken.gaps) AS gap ORDER BY 1) AS gap_first,
       ARRAY(SELECT upper(gap) - 1 FROM unnest(taken.gaps) AS gap ORDER BY 1) AS gap_last,
       CASE WHEN handed_out.is_called THEN handed_out.last_value ELSE 0 END AS last,
       greatest(0, extract(epoch FROM r.expires_at - malote.clock()) * 1000000)::int8 AS held_for
  FROM malote.relay r
 CROSS JOIN malote.outbox_seq_seq AS handed_out
  LEFT JOIN taken ON true
 WHERE r.name = $1
