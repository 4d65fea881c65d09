-- The days from $1 to $2 days after today for which the inbox should have a partition, by the database's
-- clock, each with the day after. Not today or tomorrow, except in the beginning: an event that was on
-- its way to DEFAULT while the partition of its day was attached would be refused.
SELECT to_char(day, 'YYYYMMDD') AS first, to_char(day + 1, 'YYYYMMDD') AS beyond
  FROM generate_series($1::int, $2::int) AS n,
       LATERAL (SELECT (malote.clock() AT TIME ZONE 'UTC')::date + n AS day) AS d
