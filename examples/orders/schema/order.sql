-- What the order service owns. The same file serves SQLite and PostgreSQL, and may be run again at any
-- time.

CREATE TABLE IF NOT EXISTS products (
    sku   TEXT PRIMARY KEY CHECK (length(sku) BETWEEN 1 AND 64),
    -- whole minor units (cents)
    price BIGINT NOT NULL CHECK (price > 0)
);

CREATE TABLE IF NOT EXISTS orders (
    -- the saga's, too
    id         TEXT PRIMARY KEY,
    amount     BIGINT NOT NULL CHECK (amount > 0),
    status     TEXT NOT NULL DEFAULT 'PENDING'
               CHECK (status IN ('PENDING', 'CONFIRMED', 'REJECTED', 'CANCELLED', 'WITHDRAWN')),
    -- a code, where it came to nothing
    reason     TEXT,
    -- grows with each change of the status
    version    BIGINT NOT NULL DEFAULT 1,
    -- the customer has asked for it to be cancelled
    unwanted   BOOLEAN NOT NULL DEFAULT FALSE,
    created_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    changed_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CHECK ((status IN ('REJECTED', 'CANCELLED')) = (reason IS NOT NULL))
);

CREATE TABLE IF NOT EXISTS order_lines (
    order_id TEXT NOT NULL REFERENCES orders (id),
    sku      TEXT NOT NULL,
    quantity BIGINT NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (order_id, sku)
);

-- What customers were told. The key went with it, so whoever received it recognises a repeat.
CREATE TABLE IF NOT EXISTS notices (
    key      TEXT PRIMARY KEY,
    order_id TEXT NOT NULL,
    about    TEXT NOT NULL,
    body     TEXT NOT NULL,
    told_at  TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (order_id, about)
);

-- The demonstration's products.
INSERT INTO products (sku, price) VALUES ('book', 1500), ('pen', 250), ('lamp', 4900), ('globe', 12900)
ON CONFLICT DO NOTHING;
