-- What the ledger owns. The same file serves SQLite and PostgreSQL, and may be run again at any time.
-- At every moment, for every account: balance = opening + credits - debits.

CREATE TABLE IF NOT EXISTS accounts (
    name    TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
    -- whole minor units (cents)
    opening BIGINT NOT NULL CHECK (opening >= 0),
    -- far below what 64 bits hold, so that no sum of a balance and an amount can leave their range
    balance BIGINT NOT NULL CHECK (balance BETWEEN 0 AND 1000000000000000000)
);

-- Two rows a payment, one a side, from one statement with one amount: they sum to zero.
CREATE TABLE IF NOT EXISTS entries (
    payment_id TEXT NOT NULL,
    side       TEXT NOT NULL CHECK (side IN ('DEBIT', 'CREDIT')),
    account    TEXT NOT NULL REFERENCES accounts (name),
    amount     BIGINT NOT NULL CHECK (amount > 0),
    made_at    TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    -- the last line against moving the money of one payment twice
    PRIMARY KEY (payment_id, side),
    UNIQUE (payment_id, account)
);
CREATE INDEX IF NOT EXISTS entries_account ON entries (account);

-- The demonstration's accounts.
INSERT INTO accounts (name, opening, balance) VALUES
    ('alice', 1000000000, 1000000000),
    ('bob',      1000000,    1000000),
    ('carol',     500000,     500000)
ON CONFLICT DO NOTHING;
