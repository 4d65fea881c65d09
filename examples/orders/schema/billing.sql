-- What the billing service owns. The same file serves SQLite and PostgreSQL, and may be run again at any
-- time.

-- One for an order.
CREATE TABLE IF NOT EXISTS payments (
    order_id      TEXT PRIMARY KEY,
    -- whole minor units (cents)
    amount        BIGINT NOT NULL CHECK (amount > 0),
    status        TEXT NOT NULL CHECK (status IN ('AUTHORISED', 'DECLINED', 'VOIDED', 'CAPTURED', 'REFUNDED')),
    -- the provider's name for what it holds
    authorisation TEXT UNIQUE,
    -- grows with each change of the status
    version       BIGINT NOT NULL DEFAULT 1,
    changed_at    TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CHECK ((status = 'DECLINED') = (authorisation IS NULL))
);

-- The money that was taken: once for an order, once for an authorisation.
CREATE TABLE IF NOT EXISTS captures (
    order_id      TEXT PRIMARY KEY REFERENCES payments (order_id),
    authorisation TEXT NOT NULL UNIQUE,
    amount        BIGINT NOT NULL CHECK (amount > 0),
    -- the key under which the provider was asked
    key           TEXT NOT NULL UNIQUE,
    captured_at   TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- The money that was given back: once for a capture.
CREATE TABLE IF NOT EXISTS refunds (
    order_id    TEXT PRIMARY KEY REFERENCES captures (order_id),
    amount      BIGINT NOT NULL CHECK (amount > 0),
    fee         BIGINT NOT NULL CHECK (fee >= 0),
    key         TEXT NOT NULL UNIQUE,
    refunded_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP
);
