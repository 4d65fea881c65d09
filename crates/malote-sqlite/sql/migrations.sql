-- Which steps have been taken.
CREATE TABLE IF NOT EXISTS malote_migration (
    number   INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    taken_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)
