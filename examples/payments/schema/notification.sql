-- What the notification service owns. The same file serves SQLite and PostgreSQL, and may be run
-- again at any time.

-- What was sent to the outside. The key went with it, so whoever received it recognises a repeat.
CREATE TABLE IF NOT EXISTS notifications (
    key        TEXT PRIMARY KEY,
    payment_id TEXT NOT NULL,
    event      TEXT NOT NULL,
    channel    TEXT NOT NULL,
    body       TEXT NOT NULL,
    sent_at    TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (payment_id, event)
);
