-- The row of a relay that has never run. Two that do this at once make one row.
INSERT INTO malote.relay (name) VALUES ($1) ON CONFLICT DO NOTHING
