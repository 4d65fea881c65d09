-- What every service owns beside its own. The same file serves SQLite and PostgreSQL, and may be run again at any
-- time.

-- Commands and changes that came to an order, or to what a service has of it, in a status which does not expect them:
-- refused, and kept for whoever asks.
CREATE TABLE IF NOT EXISTS refused_changes (
    order_id   TEXT NOT NULL,
    -- what it was, where it is known, and what it was told to become
    status     TEXT,
    version    BIGINT,
    wanted     TEXT NOT NULL,
    refused_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS refused_changes_order ON refused_changes (order_id);
