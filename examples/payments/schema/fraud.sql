-- What the fraud service owns. The same file serves SQLite and PostgreSQL, and may be run again at
-- any time.

CREATE TABLE IF NOT EXISTS decisions (
    payment_id TEXT PRIMARY KEY,
    sender     TEXT NOT NULL,
    -- whole minor units (cents)
    amount     BIGINT NOT NULL,
    -- minutes since 1970 at which the payment was received; what the velocity rule counts by
    minute     BIGINT NOT NULL,
    approved   BOOLEAN NOT NULL,
    -- a code, where it was not approved
    reason     TEXT,
    decided_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CHECK (approved = (reason IS NULL))
);
CREATE INDEX IF NOT EXISTS decisions_velocity ON decisions (sender, minute);
