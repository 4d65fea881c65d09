-- Whether this was set aside before. $1 by, $2 what.
SELECT id FROM malote_dead WHERE by = $1 AND what = $2
