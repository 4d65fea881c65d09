-- A record at its place.
INSERT INTO record (at, written_at, key, headers, payload) VALUES (?1, ?2, ?3, ?4, ?5)
