-- What the payment service owns. The same file serves SQLite and PostgreSQL, and may be run again at
-- any time.

CREATE TABLE IF NOT EXISTS payments (
    id         TEXT PRIMARY KEY,
    -- whole minor units (cents)
    amount     BIGINT NOT NULL CHECK (amount > 0),
    sender     TEXT NOT NULL,
    receiver   TEXT NOT NULL,
    status     TEXT NOT NULL DEFAULT 'CREATED' 
               CHECK (status IN ('CREATED', 'SETTLED', 'REJECTED', 'FAILED', 'UNDER_REVIEW')),
    -- a code, where the payment was refused
    reason     TEXT,
    -- the scheduled event that asks for a review, until there is an outcome
    deadline   TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    changed_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CHECK ((status IN ('REJECTED', 'FAILED')) = (reason IS NOT NULL))
);

-- Outcomes that came to a payment that had ended already: refused, and kept for whoever asks why.
CREATE TABLE IF NOT EXISTS refused_changes (
    payment_id TEXT NOT NULL REFERENCES payments (id),
    -- what the payment was, and what it was told to become
    status     TEXT NOT NULL,
    wanted     TEXT NOT NULL,
    reason     TEXT,
    refused_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS refused_changes_payment ON refused_changes (payment_id);
