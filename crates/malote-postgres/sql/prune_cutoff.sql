-- The first day that is still kept, when rows are kept for $1 microseconds.
SELECT ((malote.clock() - $1 * interval '1 microsecond') AT TIME ZONE 'UTC')::date AS day
