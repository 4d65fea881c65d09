-- How many rows a partition of the inbox holds.
SELECT count(*) AS rows FROM malote.NAME
